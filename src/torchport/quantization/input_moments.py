"""Second moments of a layer's inputs over items, and the share of them that is sampling noise.

Rows of one sequence are correlated, as are tokens that attend to the same text. So the noise is estimated
from the variance between whole sequences: a thousand rows from ten sequences say little more than ten rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchport.quantization.weight_rounding import Moments

_ITEMS = 16  # used to estimate the noise


class InputMoments:
    """The second moments of a tensor that one or several layers read.

    Args:
        items: the tensor in the quantized model for each item: `[…, inputs]`, all of the same shape.
    """

    def __init__(self, items: Sequence[torch.Tensor]) -> None:
        self._items = items
        self._squares = _mean_product(items, items)
        self._sizes = self._squares.diagonal().sqrt()
        few = [self._unit(each) for each in items[:_ITEMS]]
        unit = self._unit(self._unit(self._squares).T)
        self._noise = noise_share(few, few, unit, len(items), is_square=True)

    def of(self, weight: torch.Tensor, wanted: Sequence[torch.Tensor]) -> Moments:
        """Return the moments of a layer.

        Args:
            weight: the layer's weight, in floats.
            wanted: its results in the float model for each item, without the bias.
        """
        products = _mean_product(self._items, wanted)
        few = list(zip(self._items, wanted, strict=True))[:_ITEMS]
        lost = [result - item @ weight.T for item, result in few]
        mean = self._unit((products - self._squares @ weight.T).T).T
        noise = noise_share([self._unit(item) for item, _ in few], lost, mean, len(self._items))
        count = sum(item.shape[:-1].numel() for item in self._items)
        return Moments(self._squares, products, count, self._noise, noise)

    def _unit(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with each input (its last dimension) divided by its root mean square."""
        return torch.where(self._sizes > 0, tensor / self._sizes, 0.0)


def noise_share(
    ones: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    mean: torch.Tensor,
    items: int,
    *,
    is_square: bool = False,
) -> float:
    """Return the share of the power of a mean product that is sampling noise, between 0 and 1.

    It is the variance of the mean, estimated from the spread between sequences, divided by the mean's power.

    Args:
        ones, others: the factors, for some items: `[sequences, …, features]`, or rows, each a sequence.
        mean: their mean product over all items: `[features, features]`.
        items: the total number of items.
        is_square: whether the factors are the same, normalized to size 1: then the diagonal is excluded.
    """
    pairs = [
        (_sequences(one, len(ones)), _sequences(other, len(ones)))
        for one, other in zip(ones, others, strict=True)
    ]
    count = sum(len(one) for one, _ in pairs)
    total = count / len(pairs) * items if pairs else 0
    if total < 2:
        return 1.0
    own = sum(_power(one, other, is_square) for one, other in pairs) / count
    power = float(mean.double().square().sum())
    if is_square:
        power -= float(mean.diagonal().double().square().sum())
    if power <= 0.0:
        return 1.0
    return min(1.0, max(0.0, (own - power) / (total - 1) / power))


def _sequences(item: torch.Tensor, items: int) -> torch.Tensor:
    """Return an item as `[sequences, rows, features]`; a single sequence as its rows."""
    if item.dim() < 3 or (items == 1 and len(item) == 1):
        return item.reshape(-1, 1, item.shape[-1])
    return item.flatten(1, -2)


def _power(one: torch.Tensor, other: torch.Tensor, is_square: bool) -> float:
    """Return the power of each sequence's own mean product, summed over sequences."""
    rows = one.shape[1]
    if rows * rows < one.shape[2] * other.shape[2]:
        found = ((one @ one.mT) * (other @ other.mT)).double().sum()
    else:
        found = (one.mT @ other).double().square().sum()
    if is_square:
        found -= one.square().sum(1).double().square().sum()
    return float(found) / rows**2


def _mean_product(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(ones[0].shape[-1], others[0].shape[-1])
    count = sum(one.shape[:-1].numel() for one in ones)
    for one, other in zip(ones, others, strict=True):
        rows, others_rows = (each.reshape(-1, each.shape[-1]) for each in (one, other))
        total.addmm_(rows.T, others_rows, alpha=1 / max(1, count))
    return total
