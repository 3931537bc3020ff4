"""Estimates how long a program takes on a chip: an n150, one Wormhole.

The model: each call takes its launch time plus the longer of its compute time and its memory time; each
tensor transferred to or from the host takes a fixed time plus the time of its bytes over the bus. Calls do
not overlap. Figures of the n150: 74 TFLOPS in bfloat16 at HiFi4 (a multiplication in four passes; fewer
passes make it faster in proportion), 288 GB/s of memory bandwidth, PCIe 4.0 ×16. The shares below reduce
these peaks to what kernels reach in practice.
"""

from __future__ import annotations

from torchport.targets.ttnn.simulator import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor, Name, TtnnProgram, refs_in

FLOPS = {"HiFi4": 74e12, "HiFi3": 98e12, "HiFi2": 148e12, "LoFi": 262e12}
FLOAT32_SHARE = 0.25  # of the rate in bfloat16
MEMORY = 288e9  # bytes per second
BUS = 16e9  # bytes per second
LAUNCH = 6e-6  # seconds per call
TRANSFER = 20e-6  # seconds per transfer
COMPUTE_SHARE = 0.35  # of the peak, in products and convolutions
MEMORY_SHARE = 0.6  # of the peak


def estimate(program: TtnnProgram) -> float:
    """Return how many seconds one run of a program is expected to take."""
    tensors = {item.name: item.tensor for item in program.inputs}
    tensors.update({item.name: item.tensor for item in program.weights})
    for call in program.load:
        tensors.update(zip(call.results, call.tensors, strict=True))
    seconds = 0.0
    near: set[str] = set()  # tensors in the cores' L1 memory, which cost no DRAM traffic
    for call in program.calls:
        tensors.update(zip(call.results, call.tensors, strict=True))
        if dict(call.kwargs).get("memory_config") == Name("L1_MEMORY_CONFIG"):
            near.update(call.results)
        seconds += LAUNCH + _busy(call, tensors, program.math_fidelity, near)
    for crossing in (*program.inputs, *program.outputs):
        seconds += TRANSFER + crossing.tensor.bytes / BUS
    return seconds


def _busy(call: Call, tensors: dict[str, DeviceTensor], fidelity: str, near: set[str]) -> float:
    moved = sum(tensors[name].bytes for name in {*refs_in(call), *call.results} if name not in near)
    rate = FLOPS[fidelity] * COMPUTE_SHARE
    if call.tensors[0].dtype == "float32":
        rate *= FLOAT32_SHARE
    return max(flops_of(call, tensors) / rate, moved / (MEMORY * MEMORY_SHARE))


def flops_of(call: Call, tensors: dict[str, DeviceTensor]) -> float:
    """Return how many floating-point operations a call takes, counting whole tiles."""
    flops = FUNCTIONS[call.function].flops
    return flops(call, tensors) if flops is not None else 0.0
