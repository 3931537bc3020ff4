"""Block floats: 16 neighbors in a row share an exponent; each keeps a sign and seven bits, or three."""

from __future__ import annotations

from typing import Literal

import torch

BlockFloat = Literal["bfloat8_b", "bfloat4_b"]
# Narrowest first, with the number of mantissa bits besides the sign.
BLOCK_FLOATS: dict[BlockFloat, int] = {"bfloat4_b": 3, "bfloat8_b": 7}
BY_BITS: dict[int, BlockFloat] = {8: "bfloat8_b", 4: "bfloat4_b"}
_BLOCK = 16


def block_rounded(data: torch.Tensor, dtype: BlockFloat) -> torch.Tensor:
    """Round values as the device stores them, in float32; blocks run along the last dimension."""
    bits = BLOCK_FLOATS[dtype]
    width, most = data.shape[-1], 2**bits - 1
    padded = torch.nn.functional.pad(data.float(), (0, -width % _BLOCK))
    blocks = padded.reshape(*padded.shape[:-1], -1, _BLOCK)
    exponent = torch.frexp(blocks.abs().amax(-1, keepdim=True)).exponent
    step = torch.ldexp(torch.ones(exponent.shape), exponent - bits)
    rounded = (blocks / step).round().clamp(-most, most) * step
    return rounded.reshape(padded.shape)[..., :width]


def narrowest(matrix: torch.Tensor) -> BlockFloat | None:
    """Return the narrowest block float that holds a matrix exactly, such as a quantized weight; or None."""
    if matrix.is_meta or matrix.dim() < 2 or not matrix.numel():
        return None
    for dtype in BLOCK_FLOATS:
        # The first row alone rules out most matrices.
        if all(
            torch.equal(block_rounded(part, dtype), part.float()) for part in (matrix[..., :1, :], matrix)
        ):
            return dtype
    return None
