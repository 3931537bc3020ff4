"""The simulator's tensors: values in torch's memory, rounded as the device stores them.

Floats of every kind are held, and computed with, in float32: kernels get rounded values, and what they return
is rounded once. That is how the device multiplies bfloat16 and adds up in float32, it is the same on every
processor, and torch's own kernels in bfloat16 are a hundred times slower where the processor has no
instructions for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.targets.ttnn.block_floats import block_rounded
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.ttnn_program import DeviceTensor, Dtype, Layout

# What holds the device's elements here. torch computes little on unsigned integers, so wider ones do.
HELD_IN: dict[str, torch.dtype] = {
    "bfloat16": torch.float32,
    "bfloat8_b": torch.float32,
    "bfloat4_b": torch.float32,
    "float32": torch.float32,
    "int32": torch.int32,
    "uint32": torch.int64,
    "uint16": torch.int32,
}
_FITS_BFLOAT16 = (torch.bfloat16, torch.bool, torch.uint8, torch.int8)
FLOATS = ("bfloat16", "float32", "bfloat8_b", "bfloat4_b")
_MOST_DIMENSIONS = 6


@dataclass(slots=True, eq=False)
class Held:
    """A tensor on the simulated device; on torch's meta device it has a shape and no values.

    Args:
        data: its values.
        dtype, layout: what the device would hold it as.
        own_shape: its shape on the device, where that is another one: prepared weights.
    """

    data: torch.Tensor
    dtype: Dtype
    layout: Layout
    own_shape: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, without the padding to whole tiles."""
        return tuple(self.data.shape)

    @property
    def description(self) -> DeviceTensor:
        """What is known of it without its values."""
        return DeviceTensor(self.own_shape or self.shape, self.dtype, self.layout)


@dataclass(slots=True, eq=False)
class Made:
    """An object of the library's, as a kernel sees it."""

    function: str
    args: tuple[object, ...]
    kwargs: dict[str, object]


def hold(data: torch.Tensor, dtype: Dtype, layout: Layout = "tile") -> Held:
    """Return values as the device stores them: rounded to its dtype."""
    if not data.is_meta:
        if dtype == "bfloat8_b" or dtype == "bfloat4_b":
            return Held(block_rounded(data, dtype), dtype, layout)
        if dtype == "bfloat16" and data.dtype not in _FITS_BFLOAT16:
            data = data.to(torch.bfloat16)
    return Held(data.to(HELD_IN[dtype]), dtype, layout)


def hold_chosen(data: torch.Tensor, dtype: Dtype, layout: Layout = "tile") -> Held:
    """Return what a kernel chose among rounded values, or negated: that needs no rounding, but in blocks."""
    return Held(data, dtype, layout) if dtype == "bfloat16" else hold(data, dtype, layout)


def rounded(weight: Held, dtype: Dtype) -> torch.Tensor:
    """Return a weight's values as they meet an input of a dtype: float32 is rounded beside bfloat16."""
    if weight.dtype == "float32" and dtype != "float32":
        return hold(weight.data, dtype).data
    return weight.data


def need_rank(tensor: Held) -> None:
    """Refuse more dimensions than kernels were tried on."""
    if tensor.data.dim() > _MOST_DIMENSIONS:
        refuse("shape", f"a tensor has {tensor.data.dim()} dimensions, and ttnn takes {_MOST_DIMENSIONS}")


def need_tile(*tensors: object) -> None:
    """Refuse row-major tensors."""
    for tensor in tensors:
        if isinstance(tensor, Held) and tensor.layout != "tile":
            refuse("argument", "a tensor is row-major, and this kernel takes tiles")


def need_same_precision(*tensors: Held) -> None:
    """Refuse float32 beside the narrower floats, which may be mixed."""
    if len({tensor.dtype == "float32" for tensor in tensors}) > 1:
        refuse("dtype", f"a product of {' and '.join(tensor.dtype for tensor in tensors)}")


def need_dtype(tensor: Held, *dtypes: str) -> None:
    """Refuse other dtypes than these."""
    if tensor.dtype not in dtypes:
        refuse("dtype", f"ttnn computes this in {', '.join(dtypes)}, not in {tensor.dtype}")
