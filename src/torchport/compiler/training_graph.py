"""A graph of Dynamo's that wants gradients: AOTAutograd's forward and backward graphs, each with islands."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensor

from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import NormalGraph, remove_no_ops
from torchport.errors import TorchportError
from torchport.runtime.program import Program
from torchport.structure import Structure
from torchport.structure.nodes import Leaf, Tuple
from torchport.targets import Options, Target
from torchport.targets.target import OutOfRange

_log = logging.getLogger(__name__)


def compile_training(
    graph_module: fx.GraphModule, example_inputs: Sequence[object], target: Target, options: Options
) -> Callable[..., object]:
    """Compile a graph for training.

    Weights are inputs here: they change with every step. A graph whose shapes are symbolic, or that
    the target cannot build, runs with eager torch.
    """

    def compile_one(graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        return make_boxed_func(_AtenGraph(graph, target, options))

    compiler = aot_autograd(
        fw_compiler=compile_one,
        bw_compiler=compile_one,
        decompositions=dict(target.decompositions()),
        partition_fn=min_cut_rematerialization_partition,
    )
    return compiler(graph_module, example_inputs)


class _AtenGraph:
    """A functional ATen graph, built when it is first called: only then are there values to try it on."""

    def __init__(self, graph_module: fx.GraphModule, target: Target, options: Options) -> None:
        self._graph_module = graph_module
        self._target = target
        self._options = options
        self._lock = threading.Lock()
        self._program: Program | None = None
        self._tried = False

    def __call__(self, *args: object) -> object:
        """Run the graph."""
        if not self._tried:
            with self._lock:
                if not self._tried:
                    self._program = self._build(args)
                    self._tried = True
        if self._program is not None:
            try:
                return self._program.run(args)  # type: ignore[arg-type]  # all are tensors, or nothing was built
            except OutOfRange as reason:
                _log.info("this call runs on the host: %s", reason)
        return self._graph_module(*args)

    def _build(self, args: tuple[object, ...]) -> Program | None:
        if not all(isinstance(item, torch.Tensor) and not isinstance(item, FakeTensor) for item in args):
            _log.info("a training graph with symbolic shapes runs with eager torch")
            return None
        copy = fx.GraphModule(self._graph_module, fx.Graph())
        copy.graph.output(copy.graph.graph_copy(self._graph_module.graph, {}))
        remove_no_ops(copy)
        graph = NormalGraph(copy, {}, ())
        result = Structure(Tuple(tuple(Leaf(index) for index in range(len(graph.returned)))), ())
        names = tuple(node.name for node in copy.graph.nodes if node.op == "placeholder")
        try:
            source = Source("training graph", graph, args, names, result)  # type: ignore[arg-type]
            program, _ = build_program(source, self._target, self._options)
        except Exception as error:  # noqa: BLE001  # whatever it is, eager torch still gives the answer
            _log.warning(
                "a training graph runs with eager torch: %s",
                error,
                exc_info=not isinstance(error, TorchportError),
            )
            return None
        return program
