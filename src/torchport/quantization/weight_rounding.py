"""Rounds a weight column by column: what one column loses, those that are not rounded yet make up for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.quantization.weight_grids import Grid

# What is added to each input's mean square at least, as a share of their mean.
_DAMPING = 0.01
_MOST_NOISE = 0.99  # nothing is chance alone
_BLOCK = 128  # columns whose errors reach the others at once


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """What is known of a layer on data: of its inputs, in the quantized model, and of what it should give.

    Args:
        squares: the inputs' mean products with each other: `[inputs, inputs]`.
        products: their mean products with the wanted results: `[inputs, outputs]`.
        count: of how many rows they are the mean.
        noise: which share of `squares`, but for the diagonal, is chance, and no property of such data.
        products_noise: the same of what `products` have beyond those that the weight itself gives.
    """

    squares: torch.Tensor
    products: torch.Tensor
    count: int
    noise: float = 0.0
    products_noise: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether there is anything to go by."""
        is_finite = bool(self.squares.isfinite().all()) and bool(self.products.isfinite().all())
        return self.count > 0 and is_finite and bool(self.squares.diagonal().sum() > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A weight in groups of inputs, rounded.

    Args:
        grid: the numbers that each group has: of the shape `[outputs, groups, 1]`.
        whole: which of them each weight has: `[outputs, groups, group]`.
    """

    grid: Grid
    whole: torch.Tensor


def round_groups(
    weight: torch.Tensor, group: int, symmetric: bool, importance: torch.Tensor | None = None
) -> Rounded:
    """Round each weight to what is nearest, in four bits.

    Args:
        weight: `[outputs, inputs]`.
        group: how many inputs share a scale.
        symmetric: whether there is no zero point.
        importance: how much each input counts; None: all alike.
    """
    groups = weight.unflatten(1, (-1, group))
    counts = None if importance is None else importance.unflatten(0, (-1, group))
    grid = Grid.fitted(groups, 4, symmetric, counts)
    return Rounded(grid, grid.round(groups))


def round_with_data(weight: torch.Tensor, moments: Moments, group: int, symmetric: bool) -> Rounded:
    """Round a weight so that on the data the results are what is wanted, as far as four bits can.

    First the weight is found that gives the wanted results on the inputs that the layer has in the quantized
    model: it makes up for what the layers before it lost. Then that is rounded, the inputs that matter most
    first, and each column's error is spread over those that follow, as they vary together. The more of what
    the data say is chance, the less of either is done: it would be fitted to these data, and to no others.

    Args:
        weight: `[outputs, inputs]`, in float32.
        moments: what is known of the layer.
        group, symmetric: as in `round_groups`.
    """
    squares, floats = moments.squares.double(), weight.double()
    missing = moments.products.double() - squares @ floats.T
    noise = min(moments.products_noise, _MOST_NOISE)
    factor = torch.linalg.cholesky(_damped(squares, noise / (1 - noise)))
    best = (floats + torch.cholesky_solve(missing, factor).T).float()
    squares = _damped(squares, moments.noise)
    importance = squares.diagonal().float()
    grid = Grid.fitted(best.unflatten(1, (-1, group)), 4, symmetric, importance.unflatten(0, (-1, group)))
    return Rounded(grid, _round_columns(best, squares, grid, group))


def _damped(squares: torch.Tensor, share: float) -> torch.Tensor:
    """Return mean squares of inputs with a share of each, and a little of all, added to its own."""
    own = squares.diagonal()
    return squares + (share * own + _DAMPING * own.mean()).diag()


def _round_columns(weight: torch.Tensor, squares: torch.Tensor, grid: Grid, group: int) -> torch.Tensor:
    """Return the whole numbers of a weight, `[outputs, groups, group]`."""
    inputs = weight.shape[1]
    order = squares.diagonal().argsort(descending=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(squares[order][:, order]))
    spread = torch.linalg.cholesky(inverse, upper=True).float()
    # Rows are columns of the weight: they are read and changed one after the other.
    left = weight.T[order].contiguous()
    scale, zero = (
        each.expand(-1, -1, group).flatten(1).T[order].contiguous() for each in (grid.scale, grid.zero)
    )
    whole = torch.empty_like(left)
    for begin in range(0, inputs, _BLOCK):
        end = min(begin + _BLOCK, inputs)
        errors = torch.empty_like(left[begin:end])
        for place in range(begin, end):
            stored = ((left[place] / scale[place]).round() + zero[place]).clamp(grid.low, grid.high)
            whole[place] = stored
            error = (left[place] - (stored - zero[place]) * scale[place]) / spread[place, place]
            errors[place - begin] = error
            left[place + 1 : end] -= spread[place, place + 1 : end, None] * error
        left[end:] -= spread[begin:end, end:].T @ errors
    back = torch.empty_like(whole)
    back[order] = whole
    return back.T.reshape(-1, inputs // group, group)
