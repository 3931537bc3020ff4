"""A model as a graph that can be traversed, changed, run, and written back as Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import fx, nn

from torchport.capture import Argument, CallGraph, OnDataDependent, Size, capture_calls
from torchport.codegen.code import is_name
from torchport.codegen.generate import Generator
from torchport.codegen.script import Loading, write_script
from torchport.codegen.verify import Original, verify_code
from torchport.codegen.weights_file import check_weights_name, write_weights
from torchport.errors import CodegenError
from torchport.records import write_text
from torchport.structure import call_arguments


class TraceGraph(fx.GraphModule):
    """A model as a graph of the calls that its code makes.

    A `torch.fx.GraphModule`: `graph.graph.nodes` are its nodes; changes to them take effect after
    `recompile()`. A node's `meta` has the shapes and dtypes of its result (`val`), the module that called it
    (`nn_module_stack`) and the user's source line (`stack_trace`).
    """

    model: nn.Module
    arguments: tuple[Argument, ...]
    free: tuple[Size, ...] | None

    @classmethod
    def of(cls, captured: CallGraph) -> TraceGraph:
        """Create a graph from a captured model.

        Raises:
            CodegenError: an input's name is not a valid parameter name.
        """
        for argument in captured.arguments:
            if not is_name(argument.name):
                raise CodegenError(
                    f"the input name {argument.name!r} is not a valid parameter name",
                    where=type(captured.model).__name__,
                    remedy="use a Python identifier",
                )
        made = cls(captured.parts, captured.graph, type(captured.model).__name__)
        made.train(captured.model.training)
        # Stored in `__dict__` so that they do not become submodules: the graph holds only what it uses.
        made.__dict__["model"] = captured.model
        made.__dict__["arguments"] = captured.arguments
        made.__dict__["free"] = captured.free
        made.__dict__["original_code"] = made.code
        return made

    def source(self) -> nn.Module:
        """Return what generated code is compared with: the model, or this graph if it has been changed."""
        return self.model if self.code == self.__dict__["original_code"] else self

    def to_code(
        self, class_name: str = "Model", *, weights: str = "", hierarchy: bool = True, shapes: bool = False
    ) -> str:
        """Return this model as the text of a Python file.

        Args:
            class_name: the name of the model's class.
            weights: the name of the weights file to load; empty to load none.
            hierarchy: whether submodules become classes of their own; if not, there is one flat class.
            shapes: whether to add the shapes of results as comments.
        """
        return self._write(class_name, weights, hierarchy, shapes)[0]

    def generate_code(
        self,
        code_path: str | Path,
        weights_path: str | Path | None = None,
        class_name: str = "Model",
        *,
        hierarchy: bool = True,
        shapes: bool = False,
        check: bool = True,
    ) -> str:
        """Write this model as a Python file and a weights file, and verify that they reproduce its results.

        Args:
            code_path: the Python file.
            weights_path: the weights file, `.pth` or `.safetensors`; by default `.pth` beside the code.
            class_name: the name of the model's class.
            hierarchy: whether submodules become classes of their own; if not, there is one flat class.
            shapes: whether to add the shapes of results as comments.
            check: whether to import, load and run the code and compare it with the model before writing it.

        Returns:
            The file's text.

        Raises:
            CodegenError: the model cannot be written, or the generated code's results differ.

        Example:
            >>> graph = trace_graph(torch.nn.Sequential(torch.nn.Linear(2, 3)), (torch.ones(1, 2),))
            >>> text = graph.generate_code("net.py", "net.pth", "Net")
        """
        code_path = Path(code_path)
        weights_path = Path(weights_path) if weights_path is not None else code_path.with_suffix(".pth")
        check_weights_name(weights_path)
        if weights_path.resolve() == code_path.resolve():
            raise CodegenError(
                "the code and its weights cannot be one file",
                where=str(code_path),
                remedy=f"call the code {code_path.stem}.py",
            )
        text, state = self._write(class_name, weights_path.name, hierarchy, shapes)
        if check:
            original = Original(self.source(), self.arguments, self.free)
            verify_code(text, state, original, weights_path.name)
        write_weights(state, weights_path)
        write_text(text, code_path)
        return text

    def _write(
        self, class_name: str, weights: str, hierarchy: bool, shapes: bool
    ) -> tuple[str, dict[str, torch.Tensor]]:
        if not is_name(class_name):
            raise CodegenError(f"{class_name!r} is not a valid class name", remedy="use a Python identifier")
        generator = Generator(self, self.model, class_name, hierarchy=hierarchy, shapes=shapes)
        generated = generator.generate()
        assign = any(
            tensor.is_floating_point() and tensor.dtype != torch.float32
            for tensor in generated.weights.values()
        )
        mode = "" if self.model.training else ".eval()"
        loading = Loading(weights if generated.weights else "", mode, assign, self.arguments)
        title = f"{class_name}: written by torchport from a trace of {type(self.model).__name__}."
        return write_script(generated, loading, title), generated.weights


def trace_graph(
    model: nn.Module | Callable[..., object],
    args: Sequence[object] | torch.Tensor = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    on_data_dependent: OnDataDependent = "error",
) -> TraceGraph:
    """Trace a model on example inputs.

    Args:
        model: a module or function.
        args: its positional inputs; a single tensor need not be wrapped in a tuple.
        kwargs: its keyword inputs.
        on_data_dependent: what to do if control flow depends on a tensor's values: `error`, or `specialize`,
            which keeps the path taken, with a guard.

    Returns:
        The graph, which can be called.

    Raises:
        CaptureError: the model raises, or its control flow depends on values.
        CodegenError: an input's name is not a valid parameter name.

    Example:
        >>> graph = trace_graph(torch.nn.Sequential(torch.nn.Linear(2, 3)), (torch.ones(1, 2),))
        >>> [node.op for node in graph.graph.nodes]
        ['placeholder', 'call_module', 'output']
    """
    given, kwargs = call_arguments(args, kwargs)
    return TraceGraph.of(capture_calls(model, given, kwargs, on_data_dependent=on_data_dependent))
