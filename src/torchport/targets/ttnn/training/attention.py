"""Decomposes attention in training graphs into matrix products."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.training.windows import widened


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
    """Return the result of attention, and the logsumexp of its scores, which the backward pass may use."""
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    key, value = _for_every_head(key, query), _for_every_head(value, query)
    hides, mask = _hides_all(attn_mask)
    scores = _scores(query, key, is_causal, mask, scale)
    logsumexp = torch.logsumexp(widened(scores), dim=-1, keepdim=True)
    result = torch.softmax(scores, dim=-1) @ value
    return _zeroed(result, hides), _zeroed(logsumexp, hides).squeeze(-1)


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
    """Return the gradients of attention by query, key and value; probabilities are recomputed."""
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]  # tells torch not to decompose the op
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    groups = key.shape[1]
    key, value = _for_every_head(key, query), _for_every_head(value, query)
    hides, mask = _hides_all(attn_mask)
    gradient = _zeroed(gradient, hides)
    chances = torch.softmax(_scores(query, key, is_causal, mask, scale), dim=-1)
    of_value = chances.mT @ gradient
    of_chances = gradient @ value.mT
    of_scores = chances * (of_chances - (gradient * out).sum(-1, keepdim=True))
    of_key = of_scores.mT @ query * factor
    return of_scores @ key * factor, _sum_of_heads(of_key, groups), _sum_of_heads(of_value, groups)


def _hides_all(mask: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return which queries a mask hides all keys from, and the mask with zeros for them.

    Torch returns zeros for these queries; the softmax of their scores would be NaN.
    """
    if mask is None:
        return None, None
    hides = mask.amax(-1, keepdim=True) == float("-inf")
    return hides, torch.where(hides, 0.0, mask)


def _zeroed(rows: torch.Tensor, hides: torch.Tensor | None) -> torch.Tensor:
    return rows if hides is None else torch.where(hides, 0.0, rows)


def _for_every_head(shared: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return keys or values repeated for the heads of the query that share them."""
    groups, heads = shared.shape[1], query.shape[1]
    if groups == heads:
        return shared
    images, _, *sizes = shared.shape
    repeated = shared.unsqueeze(2).expand(images, groups, heads // groups, *sizes)
    return repeated.reshape(images, heads, *sizes)


def _sum_of_heads(gradient: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the gradient of keys or values, given that of each head that shares them."""
    images, heads, *sizes = gradient.shape
    if groups == heads:
        return gradient
    return gradient.reshape(images, groups, heads // groups, *sizes).sum(2)


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
