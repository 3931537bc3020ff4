"""The options of the ttnn target."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.targets.target import Options, choice, number
from torchport.targets.ttnn.vocabulary import FIDELITIES

DTYPES = ("bfloat16", "bfloat8_b", "float32")
MEMORIES = ("dram", "l1")


@dataclass(frozen=True)
class TtnnOptions(Options):
    """How programs for Tenstorrent chips are built and run.

    Args:
        device_id: which chip.
        dtype: what float32 becomes on the device: `bfloat16`; `bfloat8_b` for the weights of matrix products,
            and of convolutions where the library accepts it, and bfloat16 for the rest; or `float32`.
        math_fidelity: how many passes a multiplication takes: `LoFi`, `HiFi2`, `HiFi3` or `HiFi4`.
        memory: where tensors lie between calls: `dram`, or `l1` for those that fit in the cores' L1 memory.
        simulate: whether to run on the simulator even where the library and a chip are available.
    """

    device_id: int = number(0, least=0, most=1023)
    dtype: str = choice("bfloat16", DTYPES)
    math_fidelity: str = choice("HiFi4", FIDELITIES)
    memory: str = choice("dram", MEMORIES)
    simulate: bool = False
