"""The rules, one file per op family; importing this package fills the registry."""

from torchport.targets.openvino.ops import (  # noqa: F401
    arithmetic,
    functions,
    movement,
    normalisation,
    pooling,
    products,
    quantization,
    reduction,
)
from torchport.targets.openvino.rules import RULES

__all__ = ["RULES"]
