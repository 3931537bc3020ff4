"""The windows of convolutions and poolings over images with channels last."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

aten = torch.ops.aten


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Return images with channels last: with channels first, small images would fill tiles with padding."""
    return images.permute(0, *range(2, images.dim()), 1)


def channels_first(images: torch.Tensor) -> torch.Tensor:
    """Return images with channels first, contiguous: torch derives the layout of later results from it."""
    return images.permute(0, images.dim() - 1, *range(1, images.dim() - 1)).contiguous()


def flat_images(images: torch.Tensor) -> torch.Tensor:
    """Return images as `[all pixels, channels]`."""
    return images.reshape(-1, images.shape[-1])


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return 16-bit floats in float32, as torch's own norms and sums compute; others unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def joined(tensors: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim)


def for_each(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each dimension; a single number applies to all."""
    given = tuple(numbers) or (0,)
    return given if len(given) == count else given[:1] * count


class Windows:
    """The windows of a convolution or a pooling over images with channels last."""

    def __init__(
        self, size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> None:
        self.size = tuple(size)
        self.stride, self.padding, self.dilation = (
            for_each(each, len(self.size)) for each in (stride, padding, dilation)
        )
        # The distance from a window's first element to its last.
        self.reach = [apart * (count - 1) for apart, count in zip(self.dilation, self.size, strict=True)]

    def counts(self, image: Sequence[int], *, ceil: bool = False) -> tuple[int, ...]:
        """Return how many windows an image has, in each dimension.

        Args:
            image: its size.
            ceil: whether to count windows that begin inside the image or the padding before it, and end
                beyond the padding after it.
        """
        found = []
        for size, pad, reach, step in zip(image, self.padding, self.reach, self.stride, strict=True):
            rest = size + 2 * pad - reach - 1
            more = ceil and rest % step and (rest // step + 1) * step < size + pad
            found.append(rest // step + (2 if more else 1))
        return tuple(found)

    def image_size(self, windows: Sequence[int], extra: Sequence[int]) -> tuple[int, ...]:
        """Return the size of a transposed convolution's result."""
        more = for_each(extra, len(self.size))
        sizes = zip(windows, self.padding, self.reach, self.stride, more, strict=True)
        return tuple((count - 1) * step - 2 * pad + reach + add + 1 for count, pad, reach, step, add in sizes)

    def offsets(self) -> list[tuple[int, ...]]:
        """Return the offset of each element of a window, in row-major order."""
        ranges = [range(0, reach + 1, apart) for reach, apart in zip(self.reach, self.dilation, strict=True)]
        return list(itertools.product(*ranges))

    def pieces(
        self, images: torch.Tensor, counts: Sequence[int] | None = None, fill: float = 0.0
    ) -> list[torch.Tensor]:
        """Return, for each element of a window, the pixels that it covers: images of size `counts`."""
        wanted = counts or self.counts(images.shape[1:-1])
        sizes = zip(wanted, images.shape[1:-1], self.padding, self.reach, self.stride, strict=True)
        ends = [(pad, (count - 1) * step + reach + 1 - size - pad) for count, size, pad, reach, step in sizes]
        padded = _padded(images, [(pad, max(behind, 0)) for pad, behind in ends], fill)
        return [_cut(padded, offset, wanted, self.stride) for offset in self.offsets()]

    def inside(self, images: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor | None]:
        """Return, for each element of a window, 1 where it covers a pixel and 0 where it covers padding.

        None where it always covers a pixel; images have channels first here.
        """
        size = images.shape[2:]
        ones = torch.ones(1, *size, 1, dtype=images.dtype, device=images.device)
        steps = zip(size, counts, self.stride, self.padding, strict=True)
        ranges = [(pad, edge + pad - (count - 1) * step) for edge, count, step, pad in steps]
        return [
            None if all(low <= at < high for at, (low, high) in zip(offset, ranges, strict=True)) else piece
            for offset, piece in zip(self.offsets(), self.pieces(ones, counts), strict=True)
        ]

    def are_patches(self, image: Sequence[int]) -> bool:
        """Whether each pixel of an image is in exactly one window, as when it is cut into patches."""
        sizes = zip(image, self.size, self.stride, self.padding, self.dilation, strict=True)
        return len(self.size) == 2 and all(
            width == step and not pad and apart == 1 and edge % width == 0
            for edge, width, step, pad, apart in sizes
        )

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        """Return the windows of images cut into patches as rows, `[windows, elements × channels]`."""
        count, height, width, channels = images.shape
        rows, columns = self.size
        lines = images.reshape(count * height // rows, rows, width // columns, columns * channels)
        flat = lines.transpose(1, 2)
        return flat.reshape(count * math.prod(self.counts((height, width))), rows * columns * channels)

    def from_patches(self, windows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Return images of a shape from their windows: the inverse of `patches`."""
        count, height, width, channels = shape
        rows, columns = self.size
        flat = windows.reshape(count * height // rows, width // columns, rows, columns * channels)
        return flat.transpose(1, 2).reshape(count, height, width, channels)

    def summands(self, images: torch.Tensor, with_padding: bool, fixed: int | None) -> float | torch.Tensor:
        """Return how many elements the mean of each window divides by; images have channels first here."""
        if fixed or with_padding or not any(self.padding):
            return fixed or math.prod(self.size)
        return functools.reduce(torch.add, self.pieces(torch.ones_like(channels_last(images[:1, :1]))))

    def onto_pixels(
        self,
        given: Sequence[torch.Tensor],
        size: Sequence[int],
        combine: Callable[[Sequence[int], Sequence[torch.Tensor]], torch.Tensor],
    ) -> torch.Tensor:
        """Return images whose pixels combine the values given to the windows that cover them.

        Pixels a multiple of the stride apart are covered by the same elements of windows. So they are
        computed together, once for each position within a stride.

        Args:
            given: for each element of a window, images with a pixel for each window.
            size: the size of the result.
            combine: computes images from the indices of elements, and the values given to them.
        """
        counts = [-(-edge // step) for edge, step in zip(size, self.stride, strict=True)]
        covers = [self._covers(place) for place in itertools.product(*map(range, self.stride))]
        shifts = zip(*[shift for cover in covers for shift in cover.values()], strict=True)
        sides = [
            (max(0, -min(shift)), max(0, count + max(shift) - had))
            for shift, count, had in zip(shifts, counts, given[0].shape[1:-1], strict=True)
        ]
        padded = {id(each): _padded(each, sides) for each in given}
        steps = (1,) * len(self.size)
        made: list[torch.Tensor | None] = []
        for cover in covers:
            pieces = [
                _cut(
                    padded[id(given[element])],
                    [by + front for by, (front, _) in zip(shift, sides, strict=True)],
                    counts,
                    steps,
                )
                for element, shift in cover.items()
            ]
            made.append(combine(list(cover), pieces) if pieces else None)
        some = next(each for each in made if each is not None)
        images = [torch.zeros_like(some) if each is None else each for each in made]
        for dim in reversed(range(len(self.size))):
            step = self.stride[dim]
            rows = [images[first : first + step] for first in range(0, len(images), step)]
            images = [_interleaved(row, 1 + dim) for row in rows]
        return _cut(images[0], (0,) * len(self.size), size, steps)

    def _covers(self, place: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return the elements that cover a pixel, and for each the index offset of its window."""
        found = {}
        for element, offset in enumerate(self.offsets()):
            apart = [here + pad - by for here, pad, by in zip(place, self.padding, offset, strict=True)]
            if not any(each % step for each, step in zip(apart, self.stride, strict=True)):
                found[element] = tuple(each // step for each, step in zip(apart, self.stride, strict=True))
        return found


def _cut(
    images: torch.Tensor, first: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> torch.Tensor:
    """Return a strided slice of the pixels in each dimension."""
    for dim, (start, count, step) in enumerate(zip(first, counts, steps, strict=True), start=1):
        end = start + (count - 1) * step + 1
        if (start, end, step) != (0, images.shape[dim], 1):
            images = aten.slice.Tensor(images, dim, start, end, step)
    return images


def _padded(images: torch.Tensor, sides: Sequence[tuple[int, int]], fill: float = 0.0) -> torch.Tensor:
    """Pad images on all sides."""
    amounts = [number for pair in reversed(sides) for number in pair]
    return functional.pad(images, (0, 0, *amounts), value=fill) if any(amounts) else images


def _interleaved(images: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Return several images interleaved along a dimension."""
    shape = images[0].shape
    lines = joined([each.reshape(*shape[: dim + 1], math.prod(shape[dim + 1 :])) for each in images], -1)
    return lines.reshape(*shape[:dim], shape[dim] * len(images), *shape[dim + 1 :])
