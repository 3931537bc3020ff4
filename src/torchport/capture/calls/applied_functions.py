"""Keeps custom autograd functions whole: the calls in their `forward` become one call of `apply`.

torch does not pass calls of `apply` to function modes, but its frame is on the stack while `forward` runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FrameType

import torch
from torch import fx

from torchport.capture.calls.graph_functions import apply_function, named

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]  # a method of the class


@dataclass(eq=False, slots=True)
class AppliedFunction:
    """One call of a custom autograd function.

    Args:
        frame: the frame of `apply`.
        kind: the function's class.
        args: its arguments in the graph.
        nodes: the nodes of the calls in its `forward`.
    """

    frame: FrameType
    kind: type
    args: tuple[fx.node.Argument, ...]
    nodes: list[fx.Node] = field(default_factory=list)


def apply_frame(frame: FrameType | None, outermost: FrameType) -> FrameType | None:
    """Return the outermost enclosing frame that is an `apply` of a user's function; None if there is none."""
    found = None
    while frame is not None and frame is not outermost:
        if frame.f_code is _APPLY and _is_importable(frame.f_locals["cls"]):
            found = frame
        frame = frame.f_back
    return found


def _is_importable(kind: type) -> bool:
    if kind.__module__.startswith(("torch.", "__main__")) or "<" in kind.__qualname__:
        return False
    try:
        return named(kind.__module__, kind.__qualname__) is kind
    except (ImportError, AttributeError):
        return False


def collapse(graph: fx.Graph, applied: AppliedFunction) -> tuple[fx.Node, fx.Node] | None:
    """Replace the nodes of a function's `forward` with a single node.

    Returns:
        The node that computed the result, and the new node; None if the function does not have exactly one
        result, and is left unchanged.
    """
    inside = set(applied.nodes)
    outputs = [node for node in applied.nodes if any(user not in inside for user in node.users)]
    if len(outputs) != 1:
        return None
    [old] = outputs
    with graph.inserting_after(applied.nodes[-1]):
        args = (applied.kind.__module__, applied.kind.__qualname__, *applied.args)
        new = graph.call_function(apply_function, args)
    new.meta = {key: value for key, value in old.meta.items() if key != "item"}
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in inside)
    for node in reversed(applied.nodes):
        if not node.users:
            graph.erase_node(node)
    return old, new
