"""The shape, dtype and memory order of a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class TensorSpec(Record):
    """A tensor's shape, dtype and memory order.

    Args:
        shape: its sizes.
        dtype: torch's name for its dtype without the prefix, such as `float32`.
        order: its dimensions from the slowest- to the fastest-varying in memory; empty if contiguous.

    Example:
        >>> TensorSpec((1, 3, 224, 224), "float32").bytes
        602112
    """

    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """How many elements the tensor holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes its elements take."""
        return self.elements * ITEM_SIZES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


ITEM_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8,
    "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8,
    "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "qint8": 1, "quint8": 1, "qint32": 4,
}  # fmt: skip
