"""The lowerings, one op family a file; importing this fills the registry."""

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
