"""Places tensors that fit into L1, the memory of the cores, if the options ask for it.

requires: calls with `frees` set
ensures: each placeable call has a `memory_config`; the tensors in L1 at any time stay below a budget; a
convolution reads from DRAM, since its weights are prepared for that

The rest of L1 is left to the kernels' own buffers: a convolution may need most of it.
"""

from __future__ import annotations

from dataclasses import replace

from torchport.targets.ttnn.simulator import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import Call, Name, refs_in

L1_BUDGET = 8 * 2**20  # of about 90 MiB on an n150
L1, DRAM = Name("L1_MEMORY_CONFIG"), Name("DRAM_MEMORY_CONFIG")


def place_tensors(calls: list[Call]) -> list[Call]:
    """Return the calls with a `memory_config` for each placeable result."""
    far = _read_from_dram(calls)
    in_l1: dict[str, int] = {}
    placed = []
    for call in calls:
        if FUNCTIONS[call.function].placeable:
            size = call.tensors[0].bytes
            fits = call.results[0] not in far and sum(in_l1.values()) + size <= L1_BUDGET
            if fits:
                in_l1[call.results[0]] = size
            call = replace(call, kwargs=(*call.kwargs, ("memory_config", L1 if fits else DRAM)))
        for name in call.frees:
            in_l1.pop(name, None)
        placed.append(call)
    return placed


def _read_from_dram(calls: list[Call]) -> set[str]:
    """Return the tensors that must lie in DRAM, and those whose placement decides where these lie."""
    found: set[str] = set()
    for call in reversed(calls):
        facts = FUNCTIONS[call.function]
        follows = not facts.placeable or facts.may_share
        if facts.reads_dram or (follows and call.results[0] in found):
            found.update(refs_in(call))
    return found
