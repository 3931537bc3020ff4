"""Finishes a program: decides how inputs are transferred, drops dead calls, and frees memory.

requires: the calls of a program, each valid on its own
ensures: each input is transferred once, in the dtype and layout in which it is used; no dead calls; every
tensor is freed after its last use
"""

from __future__ import annotations

from dataclasses import replace

from torchport.targets.ttnn.builder import Builder
from torchport.targets.ttnn.l1_placement import place_tensors
from torchport.targets.ttnn.layouts import assign_layouts
from torchport.targets.ttnn.simulator import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import Call, Crossing, TtnnProgram, refs_in


def finish(
    builder: Builder, outputs: tuple[Crossing, ...], math_fidelity: str, memory: str = "dram"
) -> TtnnProgram:
    """Return the finished program.

    Args:
        builder: holds its calls, weights and inputs.
        outputs: the tensors transferred back to the host.
        math_fidelity, memory: the options of these names.
    """
    kept = {crossing.name for crossing in outputs}
    fixed_tensors = {item.name: item.tensor for item in builder.inputs}
    fixed_tensors.update({name: record.tensor for name, (record, _) in builder.weights.items()})
    fixed_tensors.update({call.results[0]: call.tensors[0] for call in builder.load})
    calls = assign_layouts(_used(builder.calls, kept), fixed_tensors, kept)
    once, calls = _hoisted(calls, fixed_tensors.keys() - {item.name for item in builder.inputs})
    inputs, calls = _absorb(builder.inputs, calls, kept)
    wanted = kept | {name for call in calls for name in refs_in(call)}
    load = _used([*builder.load, *once], wanted)
    wanted |= {name for call in load for name in refs_in(call)}
    weights = tuple(record for name, (record, _) in builder.weights.items() if name in wanted)
    fixed = {record.name for record in weights} | {name for call in load for name in call.results}
    calls = _freeing(calls, kept | fixed)
    if memory == "l1":
        calls = place_tensors(calls)
    program = TtnnProgram(tuple(inputs), weights, tuple(load), tuple(calls), outputs, math_fidelity)
    return replace(program, peak_bytes=peak_bytes(program))


def _used(calls: list[Call], wanted: set[str]) -> list[Call]:
    """Return the calls whose results are needed."""
    needed = set(wanted)
    kept: list[Call] = []
    for call in reversed(calls):
        if any(name in needed for name in call.results):
            kept.append(call)
            needed.update(refs_in(call))
    return kept[::-1]


def _hoisted(calls: list[Call], constants: set[str]) -> tuple[list[Call], list[Call]]:
    """Split off the calls that depend only on weights: they run once, when the program is loaded."""
    once: list[Call] = []
    each: list[Call] = []
    for call in calls:
        if constants.issuperset(refs_in(call)):
            once.append(call)
            constants = constants | set(call.results)
        else:
            each.append(call)
    return once, each


def _absorb(inputs: list[Crossing], calls: list[Call], kept: set[str]) -> tuple[list[Crossing], list[Call]]:
    """Transfer inputs in the dtype, layout and shape that their users need, dropping the conversions."""
    users: dict[str, list[Call]] = {}
    for call in calls:
        for name in dict.fromkeys(refs_in(call)):
            users.setdefault(name, []).append(call)
    found: list[Crossing] = []
    origins: dict[str, str] = {}  # for each call now done by the host, the input that replaces its result
    for given in inputs:
        crossing, name = given, given.name
        while name not in kept and len(users.get(name, ())) == 1:
            [call] = users[name]
            name = call.results[0]
            if not FUNCTIONS[call.function].by_host or name in kept:
                break
            if call.tensors[0].dtype not in _host_gives(crossing):
                break
            crossing = replace(crossing, tensor=call.tensors[0])
            origins[name] = given.name
        found.append(crossing)
    return found, [call.reading(origins) for call in calls if call.results[0] not in origins]


def _host_gives(crossing: Crossing) -> tuple[str, ...]:
    """Return the dtypes in which the host can send a tensor as exactly as a cast on the device."""
    if crossing.host_dtype in ("int64", "int32"):
        return ("int32", "uint32")
    return ("bfloat16", "float32") if crossing.tensor.dtype == "bfloat16" else (crossing.tensor.dtype,)


def _freeing(calls: list[Call], kept: set[str]) -> list[Call]:
    """Return the calls with `frees` set: each tensor is freed after its last use."""
    last: dict[str, int] = {}
    for place, call in enumerate(calls):
        for name in (*refs_in(call), *call.results):
            last[name] = place
    freed: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in kept:
            freed.setdefault(place, []).append(name)
    return [replace(call, frees=tuple(freed.get(place, ()))) for place, call in enumerate(calls)]


def peak_bytes(program: TtnnProgram) -> int:
    """Return the peak memory of a program's weights and other tensors."""
    sizes = {item.name: item.tensor.bytes for item in program.inputs}
    prepared = {name for call in program.load for name in refs_in(call)}
    fixed = sum(item.tensor.bytes for item in program.weights if item.name not in prepared)
    fixed += sum(tensor.bytes for call in program.load for tensor in call.tensors)
    live = sum(sizes.values())
    most = live
    for call in program.calls:
        for name, tensor in zip(call.results, call.tensors, strict=True):
            sizes[name] = tensor.bytes
            live += tensor.bytes
        most = max(most, live)
        live -= sum(sizes[name] for name in call.frees)
    return fixed + most
