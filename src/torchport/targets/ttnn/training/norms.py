"""Decomposes norms in training graphs, with channels last and in at least float32, like torch's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchport.targets.ttnn.training.windows import channels_first, channels_last, flat_images, widened
from torchport.torch_private import decomposition_table

aten = torch.ops.aten


def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Normalise each channel; also return means, inverse standard deviations and running statistics."""
    if not training or x.numel() == x.shape[1]:
        theirs = decomposition_table[aten._native_batch_norm_legit_functional.default]
        return theirs(x, weight, bias, running_mean, running_var, training, momentum, eps)  # type: ignore[no-any-return]
    made, mean, scale, squares = _normalised(x, weight, bias, eps)
    variance = squares / (x.numel() // x.shape[1] - 1)
    new_mean = widened(running_mean) * (1 - momentum) + mean * momentum
    new_var = widened(running_var) * (1 - momentum) + variance * momentum
    kept = _kept_dtype(x, weight)
    return made, mean.to(kept), scale.to(kept), new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


def batch_norm_without_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Normalise each channel; also return means and inverse standard deviations."""
    made, mean, scale, _ = _normalised(x, weight, bias, eps)
    kept = _kept_dtype(x, weight)
    return made, mean.to(kept), scale.to(kept)


def _kept_dtype(x: torch.Tensor, weight: torch.Tensor | None) -> torch.dtype:
    """Return the dtype in which torch's norms save statistics: that of their weights, if they have any."""
    return x.dtype if weight is None else weight.dtype


def _normalised(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, ...]:
    """Return normalised channels, their means, inverse standard deviations and centred sums of squares."""
    flat = widened(flat_images(channels_last(x)))
    mean = flat.mean(0)
    centred = flat - mean
    squares = (centred * centred).sum(0)
    scale = torch.rsqrt(squares / flat.shape[0] + eps)
    result = centred * scale
    result = result if weight is None else result * weight
    result = (result if bias is None else result + bias).to(x.dtype)
    made = channels_first(result.reshape(x.shape[0], *x.shape[2:], x.shape[1]))
    return made, mean, scale, squares


def batch_norm_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    mean: torch.Tensor | None,
    scale: torch.Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of a batch norm by its input, weight and bias."""
    if not train or mean is None or scale is None:
        theirs = decomposition_table[aten.native_batch_norm_backward.default]
        return theirs(  # type: ignore[no-any-return]
            gradient, x, weight, running_mean, running_var, mean, scale, train, eps, output_mask
        )
    given = widened(flat_images(channels_last(gradient)))
    normal = (widened(flat_images(channels_last(x))) - mean) * scale
    of_bias, of_weight = given.sum(0), (given * normal).sum(0)
    count = given.shape[0]
    factor = scale if weight is None else scale * weight
    flat = ((given - normal * (of_weight / count) - of_bias / count) * factor).to(x.dtype)
    of_input = channels_first(flat.reshape(x.shape[0], *x.shape[2:], x.shape[1]))
    kept = _kept_dtype(x, weight)
    return (
        of_input,
        of_weight.to(kept) if output_mask[1] else None,
        of_bias.to(kept) if output_mask[2] else None,
    )


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    images: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalise groups of channels; also return their means and inverse standard deviations."""
    rows = widened(x).reshape(images, groups, channels // groups * pixels)
    mean = rows.mean(-1, keepdim=True)
    centred = rows - mean
    scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    made = (centred * scale).reshape(x.shape)
    shape = (1, channels, *[1] * (x.dim() - 2))
    made = made if weight is None else made * weight.reshape(shape)
    made = made if bias is None else made + bias.reshape(shape)
    kept = _kept_dtype(x, weight)
    parts = (mean.reshape(images, groups), scale.reshape(images, groups))
    return made.to(x.dtype), parts[0].to(kept), parts[1].to(kept)


def variance_and_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the variance and the mean over some dimensions."""
    dims = [each % x.dim() for each in dim] if dim else list(range(x.dim()))
    wide = widened(x)
    mean = wide.mean(dims, keepdim=True)
    centered = wide - mean
    count = math.prod(x.shape[each] for each in dims)
    freedom = count - (1 if correction is None else correction)
    if freedom <= 0:
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    variance = ((centered * centered).sum(dims, keepdim=keepdim) / freedom).to(x.dtype)
    return variance, mean.to(x.dtype).reshape(variance.shape)
