"""The registry of simulated functions; importing this fills it.

A kernel checks its arguments as the library does, or more strictly, and computes with torch. On tensors
without values it only infers what comes out, so that one definition serves verdicts and runs.
"""

from torchport.targets.ttnn.simulator import (
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    matrix,
    movement,
    normalisation,
    pooling,
    reduction,
)
from torchport.targets.ttnn.simulator.registry import KERNELS
from torchport.targets.ttnn.simulator.tensors import Held, Made

__all__ = [
    "KERNELS",
    "Held",
    "Made",
    "attention",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "matrix",
    "movement",
    "normalisation",
    "pooling",
    "reduction",
]
