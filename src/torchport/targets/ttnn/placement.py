"""Places tensors that fit into L1, the memory beside the cores, where the options ask for it.

requires: calls that say when tensors are freed
ensures: each call that can be told says where its result lies; what lies in L1 at once stays below a budget

The rest of L1 is for the kernels' own buffers: a convolution may take most of it.
"""

from __future__ import annotations

from dataclasses import replace

from torchport.targets.ttnn.program import Call, Name

L1_BUDGET = 8 * 2**20  # of about 90 MiB on an n150
L1, DRAM = Name("L1_MEMORY_CONFIG"), Name("DRAM_MEMORY_CONFIG")

# What takes the argument `memory_config`. Others follow their input, as reductions do, or are given DRAM.
_PLACEABLE = frozenset(
    """
    add sub mul div rsub maximum minimum relu relu6 silu gelu sigmoid tanh exp sqrt rsqrt square abs neg
    hardswish hardsigmoid linear matmul layer_norm rms_norm softmax reshape permute slice concat where
    typecast
    """.split()
)


def place_tensors(calls: list[Call]) -> list[Call]:
    """Return the calls with the place of each result."""
    in_l1: dict[str, int] = {}
    placed = []
    for call in calls:
        if call.function in _PLACEABLE:
            size = call.tensors[0].bytes
            fits = sum(in_l1.values()) + size <= L1_BUDGET
            if fits:
                in_l1[call.results[0]] = size
            call = replace(call, kwargs=(*call.kwargs, ("memory_config", L1 if fits else DRAM)))
        for name in call.frees:
            in_l1.pop(name, None)
        placed.append(call)
    return placed
