"""The simulator's tensors: torch tensors whose values are rounded as the device stores them.

Floats of every dtype are stored and computed in float32: kernels get rounded values, and their results are
rounded once. This matches the device, which multiplies bfloat16 and accumulates in float32; it gives the same
results on every processor; and torch's own bfloat16 kernels are a hundred times slower on processors without
bfloat16 instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.targets.ttnn.block_floats import block_rounded
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.ttnn_program import DeviceTensor, Dtype, Layout

# The torch dtype that stores each device dtype. torch has few ops on unsigned integers, so wider signed ones
# are used.
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
        dtype, layout: its dtype and layout on the device.
        own_shape: its shape on the device if that differs from `data`'s, as for prepared weights.
    """

    data: torch.Tensor
    dtype: Dtype
    layout: Layout
    own_shape: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, without the padding to whole tiles."""
        return tuple(self.data.shape)

    @property
    def description(self) -> DeviceTensor:
        """Its description, without its values."""
        return DeviceTensor(self.own_shape or self.shape, self.dtype, self.layout)


@dataclass(slots=True, eq=False)
class Made:
    """A library object, as a kernel sees it."""

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
    """Return values selected or negated from rounded ones: only block floats must be rounded again."""
    return Held(data, dtype, layout) if dtype == "bfloat16" else hold(data, dtype, layout)


def rounded(weight: Held, dtype: Dtype) -> torch.Tensor:
    """Return a weight's values for an input of a dtype: float32 is rounded unless the input is float32."""
    if weight.dtype == "float32" and dtype != "float32":
        return hold(weight.data, dtype).data
    return weight.data


def need_rank(tensor: Held) -> None:
    """Refuse more dimensions than kernels were tested with."""
    if tensor.data.dim() > _MOST_DIMENSIONS:
        refuse(
            "shape", f"a tensor has {tensor.data.dim()} dimensions, but ttnn takes at most {_MOST_DIMENSIONS}"
        )


def need_tile(*tensors: object) -> None:
    """Refuse row-major tensors."""
    for tensor in tensors:
        if isinstance(tensor, Held) and tensor.layout != "tile":
            refuse("argument", "a tensor is row-major, but this kernel takes tiles")


def need_same_precision(*tensors: Held) -> None:
    """Refuse to mix float32 with narrower floats; those may be mixed among themselves."""
    if len({tensor.dtype == "float32" for tensor in tensors}) > 1:
        refuse("dtype", f"ttnn has no product of {' and '.join(tensor.dtype for tensor in tensors)}")


def need_dtype(tensor: Held, *dtypes: str) -> None:
    """Refuse dtypes other than these."""
    if tensor.dtype not in dtypes:
        refuse("dtype", f"ttnn computes this in {', '.join(dtypes)}, not in {tensor.dtype}")
