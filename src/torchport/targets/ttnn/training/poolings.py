"""Decomposes poolings in training graphs into ops over windows: the library pools only bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from torchport.targets.ttnn.training.windows import (
    Windows,
    channels_first,
    channels_last,
    flat_images,
    for_each,
)


def max_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum of each window, and its index in the image; the library does not pool float32."""
    windows = Windows(for_each(kernel_size, 2), stride or kernel_size, padding, dilation)
    if x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    counts = windows.counts(x.shape[2:], ceil=ceil_mode)
    pieces = windows.pieces(channels_last(x), counts, fill=float("-inf"))
    flat = [flat_images(piece) for piece in pieces]
    largest = functools.reduce(torch.maximum, flat)
    # Only the gradient uses the indices, and it recomputes them: so these become dead code.
    numbers = torch.arange(x.shape[2] * x.shape[3], device=x.device).reshape(1, *x.shape[2:], 1)
    covered = windows.pieces(numbers, counts, fill=-1)
    places = [flat_images(piece.expand(pieces[0].shape)) for piece in covered]
    place = places[-1]
    for piece, number in reversed(list(zip(flat, places, strict=True))):
        # Padding is never a maximum, even if the window is -inf as well.
        place = torch.where(((piece == largest) | (piece != piece)) & (number >= 0), number, place)
    shape = pieces[0].shape
    return channels_first(largest.reshape(shape)), channels_first(place.reshape(shape))


def max_pool_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    """Pass each window's gradient to the first of its maxima, which is recomputed."""
    windows = Windows(for_each(kernel_size, 2), stride or kernel_size, padding, dilation)
    if x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    images = channels_last(gradient)
    covered = windows.pieces(channels_last(x), gradient.shape[2:], fill=float("-inf"))
    pieces = [flat_images(piece) for piece in covered]
    largest = functools.reduce(torch.maximum, pieces)
    left = torch.ones_like(largest)  # 0 from the first largest element on
    given = []
    for piece, inside in zip(pieces, windows.inside(x, gradient.shape[2:]), strict=True):
        # Padding gets nothing, even if the window is -inf as well.
        some = left if inside is None else left * flat_images(inside.expand(*images.shape[:-1], 1))
        here = torch.where(piece == largest, some, torch.zeros_like(left))
        given.append((flat_images(images) * here).reshape(images.shape))
        left = left - here
    return channels_first(windows.onto_pixels(given, x.shape[2:], _added))


def average_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Return the mean of each window; the library does not pool float32."""
    windows = Windows(for_each(kernel_size, 2), stride or kernel_size, padding, (1, 1))
    image = x.shape[2:]
    if x.dim() != 4 or windows.counts(image, ceil=ceil_mode) != windows.counts(image):
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    pieces = windows.pieces(channels_last(x))
    total = functools.reduce(torch.add, [flat_images(piece) for piece in pieces])
    counts = windows.summands(x, count_include_pad, divisor_override)
    return channels_first(total.reshape(pieces[0].shape) / counts)


def average_pool_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    """Distribute each window's gradient equally among its elements."""
    windows = Windows(for_each(kernel_size, 2), stride or kernel_size, padding, (1, 1))
    if x.dim() != 4 or windows.counts(x.shape[2:]) != tuple(gradient.shape[2:]):
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    counts = windows.summands(x, count_include_pad, divisor_override)
    parts = [channels_last(gradient) / counts] * len(windows.offsets())
    return channels_first(windows.onto_pixels(parts, x.shape[2:], _added))


def _added(elements: Sequence[int], pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, pieces)
