"""A model on fake tensors → the graphs that AOTAutograd passes to a compiler: no Dynamo, no values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import cast

import torch
import torch.fx.traceback
from torch import fx, nn

from torchport.capture.aot.aten_graph import AtenGraph
from torchport.capture.aot.node_origins import noting_origins
from torchport.capture.callable_module import as_module
from torchport.capture.quiet import as_eager, quiet_torch, without_collections
from torchport.capture.untouched import (
    Once,
    StandIn,
    faker,
    leaves_torch_as_it_was,
    nothing_remembered,
)
from torchport.capture.user_frames import user_line
from torchport.errors import CaptureError, TorchportError, one_line
from torchport.structure import Structure, call_arguments, flatten, flatten_call
from torchport.torch_private import FakeTensorMode, TracingContext, compiling, tracing, use_lazy_graph_module


@leaves_torch_as_it_was
def capture_graphs(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    backward: bool = False,
    name: str = "",
) -> tuple[AtenGraph, ...]:
    """Trace a model on fake tensors into the graphs that AOTAutograd passes to a compiler.

    They equal the graphs that `torch.compile` produces with an `aot_autograd` backend and the default
    partitioner. Nothing is computed and no weights are needed: the model may be on the meta device.

    Args:
        model: the model, in the mode (training or evaluation) to trace; it is not modified.
        args: its positional inputs.
        kwargs: its keyword inputs.
        backward: whether to trace for training: a forward graph that saves the activations needed for the
            backward pass, and the backward graph. Otherwise there is a single inference graph.
        name: the model's name in messages.

    Returns:
        The forward graph, and the backward graph if requested.

    Raises:
        CaptureError: the model raises, or its control flow depends on values, which fake tensors do not have.

    Example:
        >>> [forward] = capture_graphs(torch.nn.ReLU(), (torch.ones(2),))
        >>> [str(node.target) for node in ops_of(forward.graph_module)]
        ['aten.relu.default']
    """
    called = name or type(model).__name__
    try:
        graphs = _trace(as_module(model), *call_arguments(args, kwargs), backward)
    except TorchportError:
        raise
    except Exception as error:
        line = user_line(error)
        raise CaptureError(
            f"the model cannot be traced on fake tensors: {one_line(error)}",
            where=called + (f", {line}" if line else ""),
            remedy="trace it on real values with torch.compile, which breaks the graph where needed",
        ) from error
    if backward and all(graph.direction == "fw" for graph in graphs):
        raise CaptureError(
            "no output has a gradient, so there is no backward graph",
            where=called,
            remedy="make a parameter or an input require grad, with .requires_grad_()",
        )
    return graphs


def _trace(
    module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], backward: bool
) -> tuple[AtenGraph, ...]:
    # Imported here, since the import takes seconds.
    from functorch.compile import aot_function, default_partition  # type: ignore[import-untyped]  # torch's own

    found: list[AtenGraph] = []

    def record_forward(gm: fx.GraphModule, example_inputs: object) -> Callable[..., object]:
        found.append(AtenGraph("fw", gm))
        raise _Traced

    def partition(*joint: object, **details: object) -> tuple[fx.GraphModule, fx.GraphModule]:
        # The backward graph would be compiled only after the forward graph has run, which never happens here.
        forward, backward_graph = default_partition(*joint, **details)
        backwards.append(AtenGraph("bw", backward_graph))
        return forward, backward_graph

    backwards: list[AtenGraph] = []
    inputs = flatten_call(args, kwargs)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    substitute = Once(faker(mode))
    leaves = [substitute(leaf) for leaf in inputs.leaves]
    stand_in = StandIn(module, substitute)
    with ExitStack() as stack:
        for context in (quiet_torch(), as_eager(), without_collections(), use_lazy_graph_module(True)):
            stack.enter_context(context)
        stack.enter_context(torch.set_grad_enabled(backward))
        # As under torch.compile: otherwise torch keeps dead random ops, and `is_compiling` returns False.
        stack.enter_context(tracing(TracingContext(mode)))
        stack.enter_context(compiling())
        # Keeps torch's own node metadata: which part of the joint graph each node belongs to, and which
        # forward op a backward op belongs to.
        stack.enter_context(torch.fx.traceback.preserve_node_meta())
        flat = _FlatModule(stand_in.module, inputs.structure)
        trace = aot_function(
            flat.forward,
            fw_compiler=record_forward,
            inference_compiler=record_forward,
            partition_fn=partition,
            enable_log=False,  # otherwise every graph is printed as text, which takes a tenth of the time
        )
        with suppress(_Traced):
            trace(*flat.state, *leaves)
    return (*found, *backwards)


class _Traced(Exception):
    """Ends a trace once the graphs are recorded: nothing needs to be compiled or run."""


class _FlatModule(nn.Module):
    """A model as a function from a flat list of tensors, including its own state, to a flat list of tensors.

    Args:
        model: the model, on fake tensors.
        structure: the structure of the model's inputs.
    """

    def __init__(self, model: nn.Module, structure: Structure) -> None:
        super().__init__()
        self._held = (model,)  # in a tuple, so it is not a submodule: its tensors are inputs here
        self._structure = structure
        # Each tensor once, however many names it has: its gradient accumulates over all its uses.
        self.state: list[torch.Tensor] = [*model.parameters(), *model.buffers()]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model; return the distinct tensors of its result, excluding the inputs."""
        given = {id(own): tensor for own, tensor in zip(self.state, tensors, strict=False)}
        call = self._structure.rebuild(list(tensors[len(self.state) :]))
        args, kwargs = cast("tuple[tuple[object, ...], dict[str, object]]", call)
        # torch runs this twice, with different tensors each time, so each run gets a new stand-in.
        stand_in = StandIn(self._held[0], lambda own: given.get(id(own), own))
        model = stand_in.module
        with nothing_remembered(model), noting_origins(model, sys._getframe()):
            result = model(*args, **kwargs)
        known = {id(tensor) for tensor in tensors}
        returned = []
        for leaf in flatten(result).leaves:
            if id(leaf) not in known:
                known.add(id(leaf))
                returned.append(leaf)
        return tuple(returned)
