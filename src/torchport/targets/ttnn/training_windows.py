"""Convolutions and poolings of training graphs, taken apart into products of matrices over windows.

The library's own convolution wants weights that do not change. In a training graph weights are inputs, and
their gradients have no function. So a convolution is written as a product of matrices, over the windows of
its input laid side by side, and so are its gradients. Where each channel has weights of its own, products of
elements are added up instead. Poolings are there in bfloat16 alone.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

aten = torch.ops.aten


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Convolve images as a product of their windows with the weights."""
    if not _can_convolve(x, weight):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    weights = _Weights(weight, groups, mirrored=transposed)
    images = channels_last(x)
    if transposed:
        size = windows.image_size(x.shape[2:], output_padding)
        result = windows.onto_pixels([images] * len(windows.offsets()), size, weights.times)
    elif groups == 1 and windows.part(x.shape[2:]):
        product = torch.mm(windows.parted(images), weights.matrix())
        result = product.reshape(x.shape[0], *windows.counts(x.shape[2:]), weight.shape[0])
    else:
        result = weights.times(range(len(windows.offsets())), windows.pieces(images))
    return channels_first(result if bias is None else result + bias)


def convolution_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return a convolution's gradients by its input, its weights and its bias, as far as they are wanted."""
    if not _can_convolve(x, weight):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    weights = _Weights(weight, groups, mirrored=not transposed)
    count = len(windows.offsets())
    images, given = channels_last(x), channels_last(gradient)
    of_input = of_weight = of_bias = None
    if transposed:
        if output_mask[0]:
            of_input = weights.times(range(count), windows.pieces(given, x.shape[2:]))
        if output_mask[1]:
            of_weight = weights.gradient(windows.pieces(given, x.shape[2:]), images)
    elif groups == 1 and windows.part(x.shape[2:]):
        if output_mask[0]:
            of_input = windows.joined(torch.mm(flat_images(given), weights.whole()), images.shape)
        if output_mask[1]:
            of_weight = weights.gradient_of_whole(torch.mm(flat_images(given).t(), windows.parted(images)))
    else:
        if output_mask[0]:
            of_input = windows.onto_pixels([given] * count, x.shape[2:], weights.times)
        if output_mask[1]:
            of_weight = weights.gradient(windows.pieces(images, gradient.shape[2:]), given)
    if output_mask[2]:
        of_bias = gradient.sum((0, *range(2, gradient.dim())))
    return None if of_input is None else channels_first(of_input), of_weight, of_bias


def _can_convolve(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return x.dim() == weight.dim() and 3 <= x.dim() <= 5


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Return images as they are computed with here: tiles would be filled with padding by few pixels."""
    return images.permute(0, *range(2, images.dim()), 1)


def channels_first(images: torch.Tensor) -> torch.Tensor:
    """Return images as torch has them: in memory too, by which it decides what comes of them."""
    return images.permute(0, images.dim() - 1, *range(1, images.dim() - 1)).contiguous()


def flat_images(images: torch.Tensor) -> torch.Tensor:
    """Return images as `[pixels of all, channels]`."""
    return images.reshape(-1, images.shape[-1])


def _joined(tensors: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim)


class _Weights:
    """A convolution's weights.

    Args:
        weight: `[channels made, channels of a group taken, *sizes of a window]`.
        groups: of how many convolutions they are, side by side.
        mirrored: whether what they make is taken, and what they take is made.
    """

    def __init__(self, weight: torch.Tensor, groups: int, *, mirrored: bool) -> None:
        self.weight = weight
        self.groups = groups
        self.mirrored = mirrored
        self.elements = math.prod(weight.shape[2:])
        # A number for each channel and element: nothing is added up over channels.
        self.single = groups > 1 and tuple(weight.shape[:2]) == (groups, 1)

    def times(self, elements: Sequence[int], pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return images that are made of others.

        Args:
            elements: some of the elements of a window.
            pieces: what each of them covers.
        """
        if self.single:
            table = self.weight.reshape(self.groups, self.elements).t()
            rows = [table[element : element + 1] for element in elements]
            made = functools.reduce(
                torch.add, [flat_images(p) * row for p, row in zip(pieces, rows, strict=True)]
            )
        elif self.groups == 1:
            made = torch.mm(self._columns(pieces), self.matrix(elements))
        else:
            made = torch.bmm(self._columns(pieces), self.matrix(elements)).permute(1, 0, 2)
        return made.reshape(*pieces[0].shape[:-1], math.prod(made.shape[1:]))

    def gradient(self, pieces: Sequence[torch.Tensor], given: torch.Tensor) -> torch.Tensor:
        """Return their gradient.

        It is computed for one element of a window after another. From all columns at once it would take
        those that `times` made, and several times the memory to keep them until then.

        Args:
            pieces: what each element covers.
            given: the gradient of what was made.
        """
        if self.single:
            sums = [(flat_images(piece) * flat_images(given)).sum(0, keepdim=True) for piece in pieces]
            return _joined(sums, 0).t().reshape(self.weight.shape)
        made = self._columns([given]).mT
        multiply = torch.mm if self.groups == 1 else torch.bmm
        products = _joined([multiply(made, self._columns([piece])) for piece in pieces], -2)
        apart = products.reshape(*products.shape[:-2], self.elements, -1, products.shape[-1])
        return apart.movedim(-3, -1).reshape(self.weight.shape)

    def _columns(self, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return windows as rows, `[windows, elements × channels]`, or such a matrix for each group."""
        flat = [flat_images(piece) for piece in pieces]
        if self.groups > 1:
            size = flat[0].shape[1] // self.groups
            flat = [each.reshape(each.shape[0], self.groups, size).permute(1, 0, 2) for each in flat]
        return _joined(flat, -1)

    def matrix(self, elements: Sequence[int] | None = None) -> torch.Tensor:
        """Return `[elements × channels taken, channels made]`, or such a matrix for each group."""
        groups = () if self.groups == 1 else (self.groups,)
        apart = self.weight.reshape(*groups, -1, self.weight.shape[1], self.elements)
        table = apart.movedim(-1, -3) if self.mirrored else apart.transpose(-1, -3)
        if elements is not None and len(elements) < self.elements:
            table = _joined([table.narrow(-3, element, 1) for element in elements], -3)
        return table.reshape(*groups, -1, table.shape[-1])

    def whole(self) -> torch.Tensor:
        """Return `[channels made, elements × channels taken]`, for what makes windows out of a pixel each."""
        made, taken = self.weight.shape[:2]
        return self.weight.reshape(made, taken, self.elements).mT.reshape(made, self.elements * taken)

    def gradient_of_whole(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the weights by that of `whole`."""
        made, taken = self.weight.shape[:2]
        return gradient.reshape(made, self.elements, taken).mT.reshape(self.weight.shape)


class _Windows:
    """The windows of a convolution or a pooling over images with their channels last."""

    def __init__(
        self, size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> None:
        self.size = tuple(size)
        self.stride, self.padding, self.dilation = (
            _for_each(each, len(self.size)) for each in (stride, padding, dilation)
        )
        # How far the last element of a window is from its first.
        self.reach = [apart * (count - 1) for apart, count in zip(self.dilation, self.size, strict=True)]

    def counts(self, image: Sequence[int], *, ceil: bool = False) -> tuple[int, ...]:
        """Return how many windows an image has, in each dimension.

        Args:
            image: its size.
            ceil: whether windows count that begin inside the image or the padding before it, and end behind
                the padding.
        """
        found = []
        for size, pad, reach, step in zip(image, self.padding, self.reach, self.stride, strict=True):
            rest = size + 2 * pad - reach - 1
            more = ceil and rest % step and (rest // step + 1) * step < size + pad
            found.append(rest // step + (2 if more else 1))
        return tuple(found)

    def image_size(self, windows: Sequence[int], extra: Sequence[int]) -> tuple[int, ...]:
        """Return the size of the image that a transposed convolution makes."""
        more = _for_each(extra, len(self.size))
        sizes = zip(windows, self.padding, self.reach, self.stride, more, strict=True)
        return tuple((count - 1) * step - 2 * pad + reach + add + 1 for count, pad, reach, step, add in sizes)

    def offsets(self) -> list[tuple[int, ...]]:
        """Return where each element of a window begins, row by row."""
        ranges = [range(0, reach + 1, apart) for reach, apart in zip(self.reach, self.dilation, strict=True)]
        return list(itertools.product(*ranges))

    def pieces(
        self, images: torch.Tensor, counts: Sequence[int] | None = None, fill: float = 0.0
    ) -> list[torch.Tensor]:
        """Return, for each element of a window, what it covers: images of `counts` pixels."""
        wanted = counts or self.counts(images.shape[1:-1])
        sizes = zip(wanted, images.shape[1:-1], self.padding, self.reach, self.stride, strict=True)
        ends = [(pad, (count - 1) * step + reach + 1 - size - pad) for count, size, pad, reach, step in sizes]
        padded = _padded(images, [(pad, max(behind, 0)) for pad, behind in ends], fill)
        return [_cut(padded, offset, wanted, self.stride) for offset in self.offsets()]

    def part(self, image: Sequence[int]) -> bool:
        """Whether each pixel of an image is in one window, as where it is cut into patches."""
        sizes = zip(image, self.size, self.stride, self.padding, self.dilation, strict=True)
        return len(self.size) == 2 and all(
            width == step and not pad and apart == 1 and edge % width == 0
            for edge, width, step, pad, apart in sizes
        )

    def parted(self, images: torch.Tensor) -> torch.Tensor:
        """Return windows that part their images as rows, `[windows, elements × channels]`."""
        count, height, width, channels = images.shape
        rows, columns = self.size
        lines = images.reshape(count * height // rows, rows, width // columns, columns * channels)
        flat = lines.transpose(1, 2)
        return flat.reshape(count * math.prod(self.counts((height, width))), rows * columns * channels)

    def joined(self, windows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Return the images of a shape that `parted` made these windows of."""
        count, height, width, channels = shape
        rows, columns = self.size
        flat = windows.reshape(count * height // rows, width // columns, rows, columns * channels)
        return flat.transpose(1, 2).reshape(count, height, width, channels)

    def summands(self, images: torch.Tensor, with_padding: bool, fixed: int | None) -> float | torch.Tensor:
        """Return how many elements a mean over each window is of; images have their channels first here."""
        if fixed or with_padding or not any(self.padding):
            return fixed or math.prod(self.size)
        return functools.reduce(torch.add, self.pieces(torch.ones_like(channels_last(images[:1, :1]))))

    def onto_pixels(
        self,
        given: Sequence[torch.Tensor],
        size: Sequence[int],
        combine: Callable[[Sequence[int], Sequence[torch.Tensor]], torch.Tensor],
    ) -> torch.Tensor:
        """Return images whose pixels are made of what the windows that cover them were given.

        Of pixels that are a stride apart the same elements of windows cover each. So they are made together,
        for one place within a stride after another.

        Args:
            given: for each element of a window, images with a pixel for each window.
            size: the images' size.
            combine: makes images of some elements, and what the windows were given that cover them so.
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
        """Return the elements that cover a pixel, and how many windows further on the one is of each."""
        found = {}
        for element, offset in enumerate(self.offsets()):
            apart = [here + pad - by for here, pad, by in zip(place, self.padding, offset, strict=True)]
            if not any(each % step for each, step in zip(apart, self.stride, strict=True)):
                found[element] = tuple(each // step for each, step in zip(apart, self.stride, strict=True))
        return found


def _cut(
    images: torch.Tensor, first: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> torch.Tensor:
    """Return some of the pixels, so many in each dimension."""
    for dim, (start, count, step) in enumerate(zip(first, counts, steps, strict=True), start=1):
        end = start + (count - 1) * step + 1
        if (start, end, step) != (0, images.shape[dim], 1):
            images = aten.slice.Tensor(images, dim, start, end, step)
    return images


def _padded(images: torch.Tensor, sides: Sequence[tuple[int, int]], fill: float = 0.0) -> torch.Tensor:
    """Put pixels around images."""
    amounts = [number for pair in reversed(sides) for number in pair]
    return functional.pad(images, (0, 0, *amounts), value=fill) if any(amounts) else images


def _interleaved(images: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Return one image of several, a row of each after another along a dimension."""
    shape = images[0].shape
    lines = _joined([each.reshape(*shape[: dim + 1], math.prod(shape[dim + 1 :])) for each in images], -1)
    return lines.reshape(*shape[:dim], shape[dim] * len(images), *shape[dim + 1 :])


def max_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest element of each window, and its place in the image; the library pools no float32."""
    windows = _Windows(_for_each(kernel_size, 2), stride or kernel_size, padding, dilation)
    if x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    counts = windows.counts(x.shape[2:], ceil=ceil_mode)
    pieces = windows.pieces(channels_last(x), counts, fill=float("-inf"))
    flat = [flat_images(piece) for piece in pieces]
    largest = functools.reduce(torch.maximum, flat)
    # Nobody asks for the places but the gradient, which looks for them again: they are left out then.
    numbers = torch.arange(x.shape[2] * x.shape[3], device=x.device).reshape(1, *x.shape[2:], 1)
    places = [flat_images(piece.expand(pieces[0].shape)) for piece in windows.pieces(numbers, counts)]
    place = places[-1]
    for piece, number in reversed(list(zip(flat, places, strict=True))):
        place = torch.where((piece == largest) | (piece != piece), number, place)
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
    """Give each window's gradient to the first of its largest elements, which is looked for again."""
    windows = _Windows(_for_each(kernel_size, 2), stride or kernel_size, padding, dilation)
    if x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    images = channels_last(gradient)
    covered = windows.pieces(channels_last(x), gradient.shape[2:], fill=float("-inf"))
    pieces = [flat_images(piece) for piece in covered]
    largest = functools.reduce(torch.maximum, pieces)
    left = torch.ones_like(largest)  # 0 from the first largest element on
    given = []
    for piece in pieces:
        here = torch.where(piece == largest, left, torch.zeros_like(left))
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
    """Return the mean of each window; the library pools no float32."""
    windows = _Windows(_for_each(kernel_size, 2), stride or kernel_size, padding, (1, 1))
    image = x.shape[2:]
    if x.dim() != 4 or windows.counts(image, ceil=ceil_mode) != windows.counts(image):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
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
    """Give each window's gradient to all of its elements, in equal parts."""
    windows = _Windows(_for_each(kernel_size, 2), stride or kernel_size, padding, (1, 1))
    if x.dim() != 4 or windows.counts(x.shape[2:]) != tuple(gradient.shape[2:]):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    counts = windows.summands(x, count_include_pad, divisor_override)
    parts = [channels_last(gradient) / counts] * len(windows.offsets())
    return channels_first(windows.onto_pixels(parts, x.shape[2:], _added))


def _added(elements: Sequence[int], pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, pieces)


def _for_each(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each dimension, where one may have been given for all."""
    given = tuple(numbers) or (0,)
    return given if len(given) == count else given[:1] * count
