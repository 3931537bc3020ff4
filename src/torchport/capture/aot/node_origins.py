"""Annotates each node that torch traces with the module and the source line that the op comes from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import torch
import torch.fx.traceback
from torch import fx, nn

from torchport.capture.module_calls import ModuleCalls
from torchport.capture.node_origin import WRAPPED, source_line
from torchport.capture.source_lines import SourceLines

_PATH = "nn_module_stack"  # torch's metadata key


@contextmanager
def noting_origins(root: nn.Module, outermost: FrameType) -> Iterator[None]:
    """Annotate traced nodes with their origins, provided that torch preserves node metadata.

    This slows down every torch call, including autograd's own, so use it for the forward pass only.

    Args:
        root: the model's stand-in; module paths are relative to it.
        outermost: the frame that bounds the user's code.
    """
    with _Origins(ModuleCalls(root), outermost):
        yield


class _Origins(SourceLines):
    """Sets the origin of each torch call before it runs."""

    def __init__(self, calls: ModuleCalls, outermost: FrameType) -> None:
        super().__init__(outermost)
        self._calls = calls

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        call = self._calls.current
        if call is None:  # a call by autograd or torch itself
            return func(*args, **(kwargs or {}))
        path = f"{WRAPPED}.{call.path}" if call.path else WRAPPED
        noted = torch.fx.traceback.current_meta
        noted[_PATH] = {path: (path, type(call.module).__name__)}
        try:
            return super().__torch_function__(func, types, args, kwargs)
        finally:
            for key in (_PATH, "stack_trace"):  # autograd's later calls have another origin
                noted.pop(key, None)


def source_lines(forwards: Sequence[fx.Graph], graph: fx.Graph) -> dict[str, str]:
    """Return the user's source line of each node that has one, keyed by the node's name.

    Args:
        forwards: the forward graphs, if `graph` is a backward graph: an op's line is that of its forward op.
        graph: the graph.
    """
    by_number: dict[object, str] = {}
    for node in itertools.chain.from_iterable(forward.nodes for forward in forwards):
        line = source_line(node)
        if line and "seq_nr" in node.meta:
            by_number[node.meta["seq_nr"]] = line
    return {
        node.name: line
        for node in graph.nodes
        if (line := source_line(node) or by_number.get(node.meta.get("seq_nr"), ""))
    }
