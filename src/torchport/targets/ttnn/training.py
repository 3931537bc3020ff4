"""How training's ops are taken apart for ttnn, whose convolutions want weights that do not change.

In a training graph weights are inputs, and gradients of weights have no function in the library. So a
convolution is written as a product of matrices, over the windows of its input laid side by side, and so are
its gradients.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from torchport.torch_private import OpOverload, decomposition_table

aten = torch.ops.aten


@functools.cache
def training_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Return how ops of training graphs are taken apart, beside those of any graph."""
    table = decomposition_table
    own: dict[OpOverload, Callable[..., object]] = {
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten.max_pool2d_with_indices_backward.default: max_pool_backward,
        aten.avg_pool2d_backward.default: average_pool_backward,
        aten.var_mean.correction: variance_and_mean,
        aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    }
    theirs = [
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.default,
        aten.native_batch_norm_backward.default,
        aten.native_layer_norm.default,
    ]
    return own | {op: table[op] for op in theirs if op in table}


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
    if weight.dim() != 4 or x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    if transposed:
        size = windows.input_size(x.shape[2:], output_padding)
        result = windows.scatter(_spread(weight, groups).mT @ _rows(x, groups), x.shape, size)
    else:
        size = windows.output_size(x.shape[2:])
        product = _spread(weight, groups) @ windows.gather(x, groups)
        result = product.reshape(x.shape[0], weight.shape[0], *size)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


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
    if weight.dim() != 4 or x.dim() != 4:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    of_input = of_weight = of_bias = None
    if transposed:
        columns = windows.gather(gradient, groups, x.shape[2:])
        if output_mask[0]:
            of_input = (_spread(weight, groups) @ columns).reshape(x.shape)
        if output_mask[1]:
            of_weight = (_rows(x, groups) @ columns.mT).sum(0).reshape(weight.shape)
    else:
        rows = _rows(gradient, groups)
        if output_mask[0]:
            of_input = windows.scatter(_spread(weight, groups).mT @ rows, gradient.shape, x.shape[2:])
        if output_mask[1]:
            of_weight = (rows @ windows.gather(x, groups).mT).sum(0).reshape(weight.shape)
    if output_mask[2]:
        of_bias = gradient.sum((0, 2, 3))
    return of_input, of_weight, of_bias


def _rows(images: torch.Tensor, groups: int) -> torch.Tensor:
    """Return images as `[images, groups, channels of a group, pixels]`."""
    return images.reshape(images.shape[0], groups, images.shape[1] // groups, -1)


def _spread(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Return weights as `[1, groups, channels of a group, inputs of each]`."""
    return weight.reshape(1, groups, weight.shape[0] // groups, -1)


class _Windows:
    """The windows of a convolution or a pooling over images."""

    def __init__(
        self, size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> None:
        self.size = tuple(size)
        self.stride, self.padding, self.dilation = (_pair(each) for each in (stride, padding, dilation))

    def output_size(self, image: Sequence[int]) -> tuple[int, int]:
        """Return how many windows an image has, down and across."""
        counts = [
            (image[d] + 2 * self.padding[d] - self.dilation[d] * (self.size[d] - 1) - 1) // self.stride[d] + 1
            for d in range(2)
        ]
        return counts[0], counts[1]

    def input_size(self, windows: Sequence[int], extra: Sequence[int]) -> tuple[int, int]:
        """Return the size of the image that a transposed convolution makes."""
        sizes = [
            (windows[d] - 1) * self.stride[d] - 2 * self.padding[d] + self.dilation[d] * (self.size[d] - 1)
            + _pair(extra)[d] + 1
            for d in range(2)
        ]  # fmt: skip
        return sizes[0], sizes[1]

    def offsets(self) -> list[tuple[int, int]]:
        """Return where each element of a window begins, row by row."""
        return [
            (row * self.dilation[0], column * self.dilation[1])
            for row, column in itertools.product(range(self.size[0]), range(self.size[1]))
        ]

    def pieces(
        self, images: torch.Tensor, counts: Sequence[int] | None = None, fill: float = 0.0
    ) -> list[torch.Tensor]:
        """Return, for each element of a window, what it covers: images of `output_size`, or of `counts`."""
        down, across = counts or self.output_size(images.shape[2:])
        if any(self.padding):
            sides = (self.padding[1], self.padding[1], self.padding[0], self.padding[0])
            images = functional.pad(images, sides, value=fill)
        rows, columns = self.stride
        return [
            images[
                :,
                :,
                row : row + (down - 1) * rows + 1 : rows,
                column : column + (across - 1) * columns + 1 : columns,
            ]
            for row, column in self.offsets()
        ]

    def gather(self, images: torch.Tensor, groups: int, counts: Sequence[int] | None = None) -> torch.Tensor:
        """Return windows side by side, `[images, groups, channels of a group × elements, windows]`."""
        count, channels = images.shape[:2]
        flat = [piece.reshape(count, channels, 1, -1) for piece in self.pieces(images, counts)]
        joined = flat[0] if len(flat) == 1 else torch.cat(flat, dim=2)
        return joined.reshape(count, groups, channels // groups * len(flat), -1)

    def scatter(self, columns: torch.Tensor, windows: Sequence[int], size: Sequence[int]) -> torch.Tensor:
        """Add windows up into images, each element to the pixel that it covers; the reverse of `gather`.

        Args:
            columns: the windows, as `gather` gives them.
            windows: the shape of the images that the windows are counted by.
            size: that of the images to be made.
        """
        count, (down, across) = windows[0], windows[2:]
        parted = columns.reshape(count, -1, len(self.offsets()), down * across)
        channels = parted.shape[1]
        pieces = [
            parted[:, :, place].reshape(count, channels, down, across) for place in range(len(self.offsets()))
        ]
        return self.add_up(pieces, size)

    def add_up(self, pieces: Sequence[torch.Tensor], size: Sequence[int]) -> torch.Tensor:
        """Add up what each element of the windows gives to images of a size."""
        height, width = (size[d] + 2 * self.padding[d] for d in range(2))
        total: torch.Tensor | None = None
        for (row, column), piece in zip(self.offsets(), pieces, strict=True):
            apart = _set_apart(piece, self.stride)
            below, right = height - row - apart.shape[2], width - column - apart.shape[3]
            placed = functional.pad(apart, (column, right, row, below))
            total = placed if total is None else total + placed
        assert total is not None
        (top, left), (rows, columns) = self.padding, size
        return total[:, :, top : top + rows, left : left + columns]


def _set_apart(images: torch.Tensor, stride: tuple[int, int]) -> torch.Tensor:
    """Put zeros between the pixels, as many as a stride skips."""
    count, channels, height, width = images.shape
    if stride[1] > 1:
        lines = images.reshape(count, channels * height, width, 1)
        images = functional.pad(lines, (0, stride[1] - 1)).reshape(count, channels, height, width * stride[1])
        images = images[:, :, :, : (width - 1) * stride[1] + 1]
    width = images.shape[3]
    if stride[0] > 1:
        lines = images.reshape(count * channels, height, 1, width)
        images = functional.pad(lines, (0, 0, 0, stride[0] - 1)).reshape(
            count, channels, height * stride[0], width
        )
        images = images[:, :, : (height - 1) * stride[0] + 1]
    return images


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
    windows = _Windows(_pair(kernel_size), _pair(stride or kernel_size), padding, dilation)
    if ceil_mode or x.dim() != 4 or windows.output_size(x.shape[2:]) != tuple(gradient.shape[2:]):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    pieces = windows.pieces(x, fill=float("-inf"))
    largest = functools.reduce(torch.maximum, pieces)
    left = torch.ones_like(gradient)  # 0 from the first largest element on
    given = []
    for piece in pieces:
        here = torch.where(piece == largest, left, torch.zeros_like(left))
        given.append(gradient * here)
        left = left - here
    return windows.add_up(given, x.shape[2:])


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
    windows = _Windows(_pair(kernel_size), _pair(stride or kernel_size), padding, (1, 1))
    if x.dim() != 4 or windows.output_size(x.shape[2:]) != tuple(gradient.shape[2:]):
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    counts: float | torch.Tensor = divisor_override or math.prod(windows.size)
    if any(windows.padding) and not count_include_pad and divisor_override is None:
        counts = functools.reduce(torch.add, windows.pieces(torch.ones_like(x[:1, :1])))
    return windows.add_up([gradient / counts] * len(windows.offsets()), x.shape[2:])


def variance_and_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the variance and the mean over some dimensions."""
    dims = [each % x.dim() for each in dim] if dim else list(range(x.dim()))
    mean = x.mean(dims, keepdim=True)
    centered = x - mean
    count = math.prod(x.shape[each] for each in dims)
    freedom = count - (1 if correction is None else correction)
    if freedom <= 0:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    variance = (centered * centered).sum(dims, keepdim=keepdim) / freedom
    return variance, mean if keepdim else mean.reshape(variance.shape)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an attention's result, and the logarithms of its sums, which its gradients may want."""
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    scores = _scores(query, key, is_causal, attn_mask, scale)
    return torch.softmax(scores, dim=-1) @ value, torch.logsumexp(scores, dim=-1)


def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of an attention by its query, key and value; probabilities are computed again."""
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]  # which torch takes for: leave it whole
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    chances = torch.softmax(_scores(query, key, is_causal, attn_mask, scale), dim=-1)
    of_value = chances.mT @ gradient
    of_chances = gradient @ value.mT
    of_scores = chances * (of_chances - (gradient * out).sum(-1, keepdim=True))
    return of_scores @ key * factor, of_scores.mT @ query * factor, of_value


def _scores(
    query: torch.Tensor, key: torch.Tensor, is_causal: bool, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    if is_causal:
        rows, columns = scores.shape[-2:]
        places = torch.arange(columns, device=query.device) - torch.arange(
            rows, device=query.device
        ).unsqueeze(1)
        scores = torch.where(places > 0, float("-inf"), scores)
    return scores


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    given = tuple(numbers)
    return (given[0], given[-1]) if given else (0, 0)
