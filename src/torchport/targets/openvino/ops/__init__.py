"""The rules, one op family a file; importing this fills the registry."""

from torchport.targets.openvino.ops import (
    attention,
    comparison,
    convolution,
    creation,
    elementwise,
    indexing,
    matrix,
    normalisation,
    pooling,
    reduction,
    resampling,
    shaping,
)
from torchport.targets.openvino.rules import RULES

__all__ = [
    "RULES",
    "attention",
    "comparison",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "matrix",
    "normalisation",
    "pooling",
    "reduction",
    "resampling",
    "shaping",
]
