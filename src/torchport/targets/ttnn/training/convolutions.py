"""Decomposes convolutions in training graphs into matrix products over windows.

The library's own convolution needs constant weights. In a training graph weights are inputs, and the library
has no function for their gradients. So a convolution becomes a matrix product over the windows of its input
(im2col), and so do its gradients. Depthwise convolutions become sums of elementwise products instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from torchport.targets.ttnn.training.windows import (
    Windows,
    channels_first,
    channels_last,
    flat_images,
    joined,
)


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
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    weights = _Weights(weight, groups, mirrored=transposed)
    images = channels_last(x)
    if transposed:
        size = windows.image_size(x.shape[2:], output_padding)
        result = windows.onto_pixels([images] * len(windows.offsets()), size, weights.times)
    elif groups == 1 and windows.are_patches(x.shape[2:]):
        product = torch.mm(windows.patches(images), weights.matrix())
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
    """Return a convolution's gradients by its input, weights and bias, as requested by `output_mask`."""
    if not _can_convolve(x, weight):
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    weights = _Weights(weight, groups, mirrored=not transposed)
    count = len(windows.offsets())
    images, given = channels_last(x), channels_last(gradient)
    of_input = of_weight = of_bias = None
    if transposed:
        if output_mask[0]:
            of_input = weights.times(range(count), windows.pieces(given, x.shape[2:]))
        if output_mask[1]:
            of_weight = weights.gradient(windows.pieces(given, x.shape[2:]), images)
    elif groups == 1 and windows.are_patches(x.shape[2:]):
        if output_mask[0]:
            of_input = windows.from_patches(
                torch.mm(flat_images(given), weights.patch_matrix()), images.shape
            )
        if output_mask[1]:
            of_weight = weights.gradient_of_patch_matrix(
                torch.mm(flat_images(given).t(), windows.patches(images))
            )
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


class _Weights:
    """A convolution's weights.

    Args:
        weight: `[output channels, input channels of a group, *window sizes]`.
        groups: the number of groups.
        mirrored: whether the weights map output channels to input channels.
    """

    def __init__(self, weight: torch.Tensor, groups: int, *, mirrored: bool) -> None:
        self.weight = weight
        self.groups = groups
        self.mirrored = mirrored
        self.elements = math.prod(weight.shape[2:])
        # Depthwise: one number per channel and element, without sums over channels.
        self.single = groups > 1 and tuple(weight.shape[:2]) == (groups, 1)

    def times(self, elements: Sequence[int], pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """Multiply pieces of images with the weights, and return the resulting images.

        Args:
            elements: the indices of some elements of a window.
            pieces: for each of them, the pixels that it covers.
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
        """Return the gradient of the weights.

        It is computed element by element of a window. Computing it from all columns at once would reuse those
        that `times` made, and keeping them until then takes several times the memory.

        Args:
            pieces: for each element, the pixels that it covers.
            given: the gradient of the result.
        """
        if self.single:
            sums = [(flat_images(piece) * flat_images(given)).sum(0, keepdim=True) for piece in pieces]
            return joined(sums, 0).t().reshape(self.weight.shape)
        made = self._columns([given]).mT
        multiply = torch.mm if self.groups == 1 else torch.bmm
        products = joined([multiply(made, self._columns([piece])) for piece in pieces], -2)
        apart = products.reshape(*products.shape[:-2], self.elements, -1, products.shape[-1])
        return apart.movedim(-3, -1).reshape(self.weight.shape)

    def _columns(self, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return windows as rows, `[windows, elements × channels]`; with groups, one matrix per group."""
        flat = [flat_images(piece) for piece in pieces]
        if self.groups > 1:
            size = flat[0].shape[1] // self.groups
            flat = [each.reshape(each.shape[0], self.groups, size).permute(1, 0, 2) for each in flat]
        return joined(flat, -1)

    def matrix(self, elements: Sequence[int] | None = None) -> torch.Tensor:
        """Return `[elements × source channels, result channels]`; with groups, one matrix per group."""
        groups = () if self.groups == 1 else (self.groups,)
        apart = self.weight.reshape(*groups, -1, self.weight.shape[1], self.elements)
        table = apart.movedim(-1, -3) if self.mirrored else apart.transpose(-1, -3)
        if elements is not None and len(elements) < self.elements:
            table = joined([table.narrow(-3, element, 1) for element in elements], -3)
        return table.reshape(*groups, -1, table.shape[-1])

    def patch_matrix(self) -> torch.Tensor:
        """Return `[output channels, elements × input channels]`, which maps each output pixel to a window."""
        made, taken = self.weight.shape[:2]
        return self.weight.reshape(made, taken, self.elements).mT.reshape(made, self.elements * taken)

    def gradient_of_patch_matrix(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the weights, given the gradient of `patch_matrix`."""
        made, taken = self.weight.shape[:2]
        return gradient.reshape(made, self.elements, taken).mT.reshape(self.weight.shape)
