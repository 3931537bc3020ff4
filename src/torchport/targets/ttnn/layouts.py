"""Assigns tile or row-major layout across a whole program to minimize conversions between the two.

requires: calls that are each valid, with a `to_layout` wherever a kernel needs the other layout
ensures: the same results; of all assignments to the calls that accept both layouts, one that converts the
fewest bytes

Kernels that compute need one layout. Kernels that move elements accept both, and keep their input's layout.
So each of the latter is assigned to one of two sides, a tensor between the sides costs its bytes, and the
cheapest assignment is a minimum cut between the kernels that need tiles and those that need rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from torchport.targets.ttnn.simulator import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor, Layout, Name, Ref, refs_in

_MOVED = ("bfloat16", "float32", "int32")  # dtypes that kernels that move elements also accept in rows
_NAMES: dict[Layout, Name] = {"tile": Name("TILE_LAYOUT"), "row_major": Name("ROW_MAJOR_LAYOUT")}

Side = str | int  # a layout, or the index of a call that accepts both


def assign_layouts(calls: list[Call], tensors: dict[str, DeviceTensor], kept: set[str]) -> list[Call]:
    """Return the calls with the fewest bytes converted between layouts.

    Args:
        calls: the calls, in order.
        tensors: the descriptions of inputs and weights.
        kept: the tensors that are transferred to the host, or must be kept for another reason.
    """
    if not any(call.function == "to_layout" for call in calls):
        return calls
    program = _Flow(calls, tensors, kept)
    chosen = program.cheapest()
    if all(call.tensors[0].layout == chosen[place] for place, call in program.free.items()):
        return calls
    return program.rewritten(chosen)


class _Flow:
    """The producers and consumers of each tensor, and their layouts."""

    def __init__(self, calls: list[Call], tensors: dict[str, DeviceTensor], kept: set[str]) -> None:
        self.calls = calls
        self.tensors = tensors | {call.results[0]: call.tensors[0] for call in calls}
        self.kept = kept
        self.origin: dict[str, str] = {}  # for a converted tensor, the tensor before conversion
        self.free: dict[int, Call] = {}
        for place, call in enumerate(calls):
            if call.function == "to_layout":
                [source] = refs_in(call)
                self.origin[call.results[0]] = self.origin.get(source, source)
            elif call.tensors[0].dtype in _MOVED and FUNCTIONS[call.function].takes_both(call):
                self.free[place] = call

    def _before(self, name: str) -> str:
        return self.origin.get(name, name)

    def _fresh(self, wish: str) -> str:
        while wish in self.tensors:
            wish += "_2"
        return wish

    def cheapest(self) -> dict[int, Layout]:
        """Return the cheapest layout for each call that accepts both."""
        makers: dict[str, Side] = {name: tensor.layout for name, tensor in self.tensors.items()}
        makers.update({call.results[0]: place for place, call in self.free.items()})
        room: dict[Side, dict[Side, int]] = defaultdict(lambda: defaultdict(int))
        for place, call in enumerate(self.calls):
            if call.function == "to_layout":
                continue
            for name in refs_in(call):
                before = self._before(name)
                taker: Side = place if place in self.free else self.tensors[name].layout
                _connect(room, makers[before], taker, self.tensors[before].bytes)
        for name in self.kept:
            before = self._before(name)
            if before in makers:
                _connect(room, makers[before], self.tensors[name].layout, self.tensors[before].bytes)
        rows = _side_of(room, "row_major", "tile")
        return {place: "row_major" if place in rows else "tile" for place in self.free}

    def rewritten(self, chosen: dict[int, Layout]) -> list[Call]:
        """Return the calls with the chosen layouts, with conversions where two layouts meet."""
        layouts = {name: tensor.layout for name, tensor in self.tensors.items()}
        layouts.update({self.free[place].results[0]: layout for place, layout in chosen.items()})
        made: dict[tuple[str, Layout], str] = {}
        found: list[Call] = []

        def wanted(name: str, layout: Layout, near: Call) -> str:
            before = self._before(name)
            if layouts[before] == layout:
                return before
            key = (before, layout)
            if key not in made:
                made[key] = self._fresh(f"{before}_{'rows' if layout == 'row_major' else 'tiles'}")
                tensor = replace(self.tensors[before], layout=layout)
                args = (Ref(before), _NAMES[layout])
                found.append(Call("to_layout", args, (), (made[key],), (tensor,), (), near.module))
            return made[key]

        for place, call in enumerate(self.calls):
            if call.function == "to_layout":
                if call.results[0] in self.kept:  # its name is known outside
                    source = wanted(call.results[0], call.tensors[0].layout, call)
                    found.append(replace(call, args=(Ref(source), _NAMES[call.tensors[0].layout])))
                continue
            names = {
                name: wanted(name, chosen[place] if place in chosen else self.tensors[name].layout, call)
                for name in dict.fromkeys(refs_in(call))
            }
            tensor = replace(call.tensors[0], layout=chosen.get(place, call.tensors[0].layout))
            found.append(replace(call.reading(names), tensors=(tensor,)))
        return found


def _connect(room: dict[Side, dict[Side, int]], one: Side, other: Side, size: int) -> None:
    if one != other:
        room[one][other] += size
        room[other][one] += size


def _side_of(room: dict[Side, dict[Side, int]], source: Side, sink: Side) -> set[Side]:
    """Return the side of `source` in a minimum cut, by Dinic's algorithm.

    Each round saturates all remaining shortest paths, so there are few rounds even for large programs.
    """
    while True:
        distance = _distances(room, source)
        if sink not in distance:
            return set(distance)
        ways = {node: list(room[node]) for node in distance}  # edges not yet exhausted in this round
        while path := _shortest_path(room, distance, ways, source, sink):
            steps = list(pairwise(path))
            amount = min(room[start][end] for start, end in steps)
            for start, end in steps:
                room[start][end] -= amount
                room[end][start] += amount


def _distances(room: dict[Side, dict[Side, int]], source: Side) -> dict[Side, int]:
    distance = {source: 0}
    queue = [source]
    for node in queue:
        for other, left in room[node].items():
            if left > 0 and other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


def _shortest_path(
    room: dict[Side, dict[Side, int]],
    distance: dict[Side, int],
    ways: dict[Side, list[Side]],
    source: Side,
    sink: Side,
) -> list[Side]:
    path = [source]
    while path and path[-1] != sink:
        node = path[-1]
        if not ways[node]:  # a dead end
            path.pop()
            if path:
                ways[path[-1]].pop()
            continue
        other = ways[node][-1]
        if room[node][other] > 0 and distance.get(other) == distance[node] + 1:
            path.append(other)
        else:
            ways[node].pop()
    return path
