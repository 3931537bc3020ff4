"""How training's ops are taken apart for ttnn: those that its library does not have, or not in float32."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from torchport.targets.ttnn import training_windows as windows
from torchport.targets.ttnn.training_windows import channels_first, channels_last, flat_images
from torchport.torch_private import OpOverload, decomposition_table

aten = torch.ops.aten


@functools.cache
def training_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Return how ops of training graphs are taken apart, beside those of any graph."""
    table = decomposition_table
    own: dict[OpOverload, Callable[..., object]] = {
        aten.convolution.default: windows.convolution,
        aten.convolution_backward.default: windows.convolution_backward,
        aten.max_pool2d_with_indices.default: windows.max_pool,
        aten.max_pool2d_with_indices_backward.default: windows.max_pool_backward,
        aten.avg_pool2d.default: windows.average_pool,
        aten.avg_pool2d_backward.default: windows.average_pool_backward,
        aten._native_batch_norm_legit_functional.default: batch_norm,
        aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
        aten.native_batch_norm_backward.default: batch_norm_backward,
        aten.native_group_norm.default: group_norm,
        aten.var_mean.correction: variance_and_mean,
        aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    }
    theirs = [aten._native_batch_norm_legit.default, aten.native_layer_norm.default]
    return own | {op: table[op] for op in theirs if op in table}


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
    """Normalise each channel; also return its mean, what it was divided by, and the running statistics."""
    if not training or x.numel() == x.shape[1]:
        theirs = decomposition_table[aten._native_batch_norm_legit_functional.default]
        return theirs(x, weight, bias, running_mean, running_var, training, momentum, eps)  # type: ignore[no-any-return]
    made, mean, scale, squares = _normalised(x, weight, bias, eps)
    new_mean = running_mean * (1 - momentum) + mean * momentum
    new_var = running_var * (1 - momentum) + squares * momentum / (x.numel() // x.shape[1] - 1)
    return made, mean, scale, new_mean, new_var


def batch_norm_without_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Normalise each channel; also return its mean and what it was divided by."""
    return _normalised(x, weight, bias, eps)[:3]


def _normalised(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, ...]:
    """Return channels with a mean of 0 and a variance of 1, their means, factors and sums of squares."""
    flat = flat_images(channels_last(x))
    mean = flat.mean(0)
    centred = flat - mean
    squares = (centred * centred).sum(0)
    scale = torch.rsqrt(squares / flat.shape[0] + eps)
    result = centred * scale
    result = result if weight is None else result * weight
    result = result if bias is None else result + bias
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
    """Return the gradients of a normalisation by its input, its weights and its bias."""
    if not train or mean is None or scale is None:
        theirs = decomposition_table[aten.native_batch_norm_backward.default]
        return theirs(  # type: ignore[no-any-return]
            gradient, x, weight, running_mean, running_var, mean, scale, train, eps, output_mask
        )
    given = flat_images(channels_last(gradient))
    normal = (flat_images(channels_last(x)) - mean) * scale
    of_bias, of_weight = given.sum(0), (given * normal).sum(0)
    count = given.shape[0]
    factor = scale if weight is None else scale * weight
    flat = (given - normal * (of_weight / count) - of_bias / count) * factor
    of_input = channels_first(flat.reshape(x.shape[0], *x.shape[2:], x.shape[1]))
    return of_input, of_weight if output_mask[1] else None, of_bias if output_mask[2] else None


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
    """Normalise groups of channels; also return the mean of each, and what it was divided by."""
    rows = x.reshape(images, groups, channels // groups * pixels)
    mean = rows.mean(-1, keepdim=True)
    centred = rows - mean
    scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    made = (centred * scale).reshape(x.shape)
    shape = (1, channels, *[1] * (x.dim() - 2))
    made = made if weight is None else made * weight.reshape(shape)
    made = made if bias is None else made + bias.reshape(shape)
    return made, mean.reshape(images, groups), scale.reshape(images, groups)


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
