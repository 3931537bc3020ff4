"""Lowers resampling: nearest by integer factors to one kernel, everything else to products with matrices.

Interpolation is linear in the pixels and separable into rows and columns, so two matrices describe it fully.
They come from applying torch's own kernels to unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import (
    Formed,
    Lowering,
    Result,
    arguments,
    flat_shape,
    packet,
    torch_value,
)
from torchport.targets.ttnn.rules import Given, lowers

aten = torch.ops.aten


def by_matrices(
    lowering: Lowering, images: fx.Node, rows: torch.Tensor, columns: torch.Tensor, kind: str
) -> Value:
    """Return images resampled by two matrices.

    Args:
        lowering: as in every lowering.
        images: the images to resample.
        rows: the matrix applied to each column of pixels: [height after, height before].
        columns: the matrix applied to each row of pixels: [width after, width before].
        kind: distinguishes matrices of the same sizes.
    """
    dtype = lowering.device_dtype(images)
    value = lowering.get(images, dtype)
    sides = [
        lowering.constant(
            matrix[None, None], (kind, side, tuple(matrix.shape)), f"{images.name}_{side}", dtype
        )
        for side, matrix in (("rows", rows), ("columns", columns.t().contiguous()))
    ]
    return lowering.precise("matmul", sides[0], lowering.precise("matmul", value, sides[1]))


def _line(resample: Callable[[torch.Tensor, list[int], float | None], torch.Tensor], size: int, wanted: int,
          scale: float | None) -> torch.Tensor:  # fmt: skip
    """Return the matrix that resamples a line: [wanted, size]."""
    lines = torch.eye(size).reshape(1, size, 1, size)
    return resample(lines, [1, wanted], scale).reshape(size, wanted).t().contiguous()


def _matrices(lowering: Lowering, node: fx.Node, resample: Callable[..., torch.Tensor], kind: str) -> Result:
    given = arguments(node)
    before = torch_value(given["input"]).shape[2:]
    after = torch_value(node).shape[2:]
    scales: list[Any] = list(given["scale_factors"] or (None, None))
    rows = _line(resample, before[0], after[0], scales[0])
    columns = _line(resample, before[1], after[1], scales[1])
    return by_matrices(lowering, given["input"], rows, columns, f"{kind} {scales}")


def _whole_factors(node: fx.Node) -> tuple[int, int] | None:
    """Return how often each row and column is repeated; None if not equally often."""
    given = arguments(node)
    shape, after = torch_value(given["input"]).shape, torch_value(node).shape
    factors = (after[2] // shape[2], after[3] // shape[3])
    whole = not (after[2] % shape[2] or after[3] % shape[3])
    return factors if whole and given["scale_factors"] in (None, list(factors)) else None


@lowers("upsample_nearest2d.vec", "f", by_matrices=lambda node: _whole_factors(node) is None)
def _nearest(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    factors = _whole_factors(node)
    if factors is not None:
        shape, after = torch_value(given["input"]).shape, torch_value(node).shape
        value = lowering.get(given["input"], form="last")
        value = lowering.reshaped(value, (shape[0], shape[2], shape[3], shape[1]))
        value = lowering.call("upsample", lowering.laid_out(value, "row_major"), factors, mode="nearest")
        return Formed(lowering.reshaped(lowering.laid_out(value, "tile"), flat_shape(after)), "last")
    return _matrices(
        lowering, node, lambda lines, size, scale: aten.upsample_nearest2d(lines, size, 1.0, scale), "nearest"
    )


@lowers("upsample_bilinear2d.vec upsample_bicubic2d.vec", "f", by_matrices=lambda node: True)
def _smooth(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    corners, resample = bool(given["align_corners"]), getattr(aten, packet(node))
    return _matrices(
        lowering, node, lambda lines, size, scale: resample(lines, size, corners, 1.0, scale),
        f"{packet(node)} {corners}",
    )  # fmt: skip
