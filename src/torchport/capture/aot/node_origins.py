"""Has torch note on each node, while it traces a module, which module and which line the op comes from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
import torch.fx.traceback
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from torchport.capture.calls.user_frames import describe_frame, user_frame
from torchport.capture.node_origin import WRAPPED, source_line
from torchport.capture.stream.module_calls import ModuleCalls

_PATH, _LINE = "nn_module_stack", "stack_trace"  # where torch looks for them


@contextmanager
def noting_origins(root: nn.Module) -> Iterator[None]:
    """Note the origins of what is traced meanwhile.

    Args:
        root: the model; a module's path is the one in it.
    """
    with ExitStack() as stack:
        # torch's own notes go with it: which forward op a backward op belongs to.
        stack.enter_context(torch.fx.traceback.preserve_node_meta())
        calls = stack.enter_context(ModuleCalls(root))
        stack.enter_context(_OriginMode(calls))
        yield


class _OriginMode(TorchFunctionMode):
    """Says before each call of torch who calls."""

    def __init__(self, calls: ModuleCalls) -> None:
        super().__init__()
        self._calls = calls

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        call = self._calls.current
        if call is not None:  # else it is autograd's or torch's own
            noted = torch.fx.traceback.current_meta
            path = f"{WRAPPED}.{call.path}" if call.path else WRAPPED
            noted[_PATH] = {path: (path, type(call.module).__name__)}
            noted[_LINE] = describe_frame(user_frame())
            try:
                return func(*args, **(kwargs or {}))
            finally:
                noted.pop(_PATH, None)
                noted.pop(_LINE, None)
        return func(*args, **(kwargs or {}))


def source_lines(forwards: Sequence[fx.Graph], graph: fx.Graph) -> dict[str, str]:
    """Return the user's line of each node of a graph that has one, by the node's name.

    Args:
        forwards: the forward graphs, if it is a backward graph: an op's line is that of its forward op.
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
