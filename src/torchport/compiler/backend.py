"""The torch.compile backend: `torch.compile(model, backend="torchport", options={"target": …})`.

torch finds it through the entry-point group `torch_dynamo_backends`, so it needs no import. Dynamo hands over
one graph for each stretch of Python without a graph break. Without gradients, a graph is compiled as in
`torchport.compile`, with its weights frozen. With gradients, AOTAutograd splits it into a forward and a
backward graph, and the target takes what it can of each. Graphs with transforms of `torch.func` take the same
path, since only AOTAutograd resolves them. What cannot be compiled runs with eager torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.fx.traceback
from torch import fx

import torchport.runtime.backend_names  # noqa: F401  # threads may name this backend at the same time
from torchport import targets
from torchport.compiler.inference_graph import InferenceGraph
from torchport.compiler.training_graph import compile_training
from torchport.records import DEFAULT_TARGET
from torchport.torch_private import FUNCTORCH_MODULES


def backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Compile one of Dynamo's graphs.

    Args:
        graph_module: the graph.
        example_inputs: the inputs of its first call.
        options: `target`, the target's name (`openvino` if not given), and the target's own options.
        mode: ignored; torch.compile's modes are inductor's.

    Returns:
        A function with the graph's inputs and outputs.

    Raises:
        TargetError: there is no such target, option or device, or its library is not installed.

    Example:
        >>> compiled = torch.compile(torch.nn.ReLU(), backend=backend, options={"target": "host"})
        >>> compiled(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    given = dict(options or {})
    target = targets.find_engine(str(given.pop("target", DEFAULT_TARGET)))
    chosen = target.make_options(given)
    target.check_ready(chosen)
    # Dynamo's graphs take weights as inputs; a graph from another source may hold them.
    if _wants_gradients([*example_inputs, *graph_module.parameters()]) or _has_transforms(graph_module):
        if not isinstance(graph_module.graph.output_node().args[0], (tuple, list)):
            return _unpacked(backend(_packed(graph_module), example_inputs, options=options))
        return _keeping_annotations(compile_training(graph_module, example_inputs, target, chosen))
    return _keeping_annotations(InferenceGraph(graph_module, target, chosen))


def _packed(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph that is not Dynamo's with its result in a tuple, as AOTAutograd requires."""
    graph = fx.Graph()
    graph.output((graph.graph_copy(graph_module.graph, {}),))
    return fx.GraphModule(graph_module, graph)


def _unpacked(run: Callable[..., object]) -> Callable[..., object]:
    return lambda *args: run(*args)[0]  # type: ignore[index]  # a graph that gives a tuple


def _keeping_annotations(run: Callable[..., object]) -> Callable[..., object]:
    """Return a function that restores the dict of custom annotations if an export removes it meanwhile.

    While one thread exports, torch annotates calls of compiled graphs in all threads, in one global dict, and
    the end of the export replaces that dict.
    """

    def call(*args: object) -> object:
        noted = "custom" in torch.fx.traceback.current_meta
        try:
            return run(*args)
        finally:
            if noted:
                torch.fx.traceback.current_meta.setdefault("custom", {})

    return call


def _wants_gradients(example_inputs: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(item, torch.Tensor) and item.requires_grad for item in example_inputs
    )


def _has_transforms(graph_module: fx.GraphModule) -> bool:
    """Whether a graph has transforms of `torch.func` (`grad`, `vmap`, `jvp` …) as Dynamo lowers them."""
    return any(
        str(getattr(node.target, "__module__", "")).startswith(FUNCTORCH_MODULES)
        for node in graph_module.graph.nodes
        if node.op == "call_function"
    )
