"""The simulator's tensors: values in torch's memory, rounded as the device stores them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.targets.ttnn.program import DeviceTensor, Dtype, Layout
from torchport.targets.ttnn.refusal import refuse

# What holds the device's elements here. torch computes little on unsigned integers, so wider ones do.
HELD_IN: dict[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "bfloat8_b": torch.bfloat16,
    "float32": torch.float32,
    "int32": torch.int32,
    "uint32": torch.int64,
    "uint16": torch.int32,
}
FLOATS = ("bfloat16", "float32", "bfloat8_b")
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
    if dtype == "bfloat8_b":
        return Held(_block_rounded(data), dtype, layout)
    held_in = HELD_IN[dtype]
    return Held(data if data.dtype is held_in else data.to(held_in), dtype, layout)


def _block_rounded(data: torch.Tensor) -> torch.Tensor:
    """Round to bfloat8_b: 16 neighbours of a row share an exponent, each keeps a sign and seven bits."""
    if data.is_meta:
        return data.to(torch.bfloat16)
    width = data.shape[-1]
    padded = torch.nn.functional.pad(data.float(), (0, -width % 16))
    blocks = padded.reshape(*padded.shape[:-1], -1, 16)
    exponent = torch.frexp(blocks.abs().amax(-1, keepdim=True)).exponent
    step = torch.ldexp(torch.ones(exponent.shape), exponent - 7)
    rounded = (blocks / step).round().clamp(-127, 127) * step
    return rounded.reshape(padded.shape)[..., :width].to(torch.bfloat16)


def need_rank(tensor: Held) -> None:
    """Refuse more dimensions than kernels were tried on."""
    if tensor.data.dim() > _MOST_DIMENSIONS:
        refuse("shape", f"a tensor has {tensor.data.dim()} dimensions, and ttnn takes {_MOST_DIMENSIONS}")


def need_tile(*tensors: object) -> None:
    """Refuse row-major tensors."""
    for tensor in tensors:
        if isinstance(tensor, Held) and tensor.layout != "tile":
            refuse("argument", "a tensor is row-major, and this kernel takes tiles")


def need_dtype(tensor: Held, *dtypes: str) -> None:
    """Refuse other dtypes than these."""
    if tensor.dtype not in dtypes:
        refuse("dtype", f"ttnn computes this in {', '.join(dtypes)}, not in {tensor.dtype}")
