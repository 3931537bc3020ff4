"""Adds nodes for tracked numbers to a graph, where they were computed, and only if they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import fx

from torchport.capture.calls.traced_calls import TracedCall
from torchport.capture.calls.tracked_numbers import Origin, Tracked, TrackedNumber, plain


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a run.

    Args:
        after: the last node recorded before it.
        call: the module call in progress.
    """

    after: fx.Node
    call: TracedCall


class NumberNodes:
    """The nodes of the numbers of one run.

    Args:
        graph: the graph to add them to.
        argument: turns a value other than a tracked number into an argument of a node.
    """

    def __init__(self, graph: fx.Graph, argument: Callable[[object], fx.node.Argument]) -> None:
        self._graph = graph
        self._argument = argument
        self._tails: dict[fx.Node, fx.Node] = {}

    def node_of(self, number: TrackedNumber) -> fx.Node:
        """Return the node that computes a number."""
        origin: Origin = number.origin
        if origin.node is None:
            args = tuple(
                self.node_of(arg) if isinstance(arg, Tracked) else self._argument(arg) for arg in origin.args
            )
            assert isinstance(number.place, Place)
            origin.node = self.insert(number.place, origin.target, args, plain(number))
        return origin.node

    def insert(
        self,
        place: Place,
        target: Callable[..., object] | str,
        args: tuple[fx.node.Argument, ...],
        value: object,
    ) -> fx.Node:
        """Add a node at a place, after the nodes added there earlier and after its arguments."""
        after = self._tails.get(place.after, place.after)
        for arg in args:
            if isinstance(arg, fx.Node) and after < arg:
                after = arg
        with self._graph.inserting_after(after):
            if isinstance(target, str):
                node = self._graph.call_method(target, args)
            else:
                node = self._graph.call_function(target, args)
        self._tails[place.after] = node
        node.meta.update(module_call=place.call, nn_module_stack=place.call.stack, val=value)
        return node
