"""The lowerings, one op family per file; importing this package fills the registry."""

from torchport.targets.ttnn.ops import (  # noqa: F401
    activation,
    arithmetic,
    attention,
    comparison,
    convolution,
    copying,
    indexing,
    matrix,
    normalisation,
    pooling,
    reduction,
    resampling,
    shaping,
)
from torchport.targets.ttnn.rules import RULES

__all__ = ["RULES"]
