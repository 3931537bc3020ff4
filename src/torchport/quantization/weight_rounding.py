"""Rounds a weight column by column: columns not rounded yet compensate for the error of each (as in GPTQ)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.quantization.weight_grids import Grid

# The minimum damping of each input's mean square, as a fraction of the mean of them all.
_DAMPING = 0.01
_MOST_NOISE = 0.99  # no data are treated as pure noise
_BLOCK = 128  # columns whose errors are propagated to the later ones together


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Second moments of a layer on data: of its inputs in the quantized model, and with its target results.

    Args:
        squares: the inputs' mean products with each other: `[inputs, inputs]`.
        products: their mean products with the target results: `[inputs, outputs]`.
        count: the number of rows that they average.
        noise: the fraction of the power of `squares`, off the diagonal, that is sampling noise.
        products_noise: the same for the difference of `products` from those of the weight's own results.
    """

    squares: torch.Tensor
    products: torch.Tensor
    count: int
    noise: float = 0.0
    products_noise: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the moments are usable: finite, and not all zero."""
        is_finite = bool(self.squares.isfinite().all()) and bool(self.products.isfinite().all())
        return self.count > 0 and is_finite and bool(self.squares.diagonal().sum() > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A weight in groups of inputs, rounded.

    Args:
        grid: the grid of each group, with scales of the shape `[outputs, groups, 1]`.
        whole: the integers of the weight: `[outputs, groups, group]`.
    """

    grid: Grid
    whole: torch.Tensor


def round_groups(
    weight: torch.Tensor, group: int, symmetric: bool, importance: torch.Tensor | None = None
) -> Rounded:
    """Round each weight to the nearest value, in four bits.

    Args:
        weight: `[outputs, inputs]`.
        group: how many inputs share a scale.
        symmetric: whether there is no zero point.
        importance: the weighting of each input; None: all are equal.
    """
    groups = weight.unflatten(1, (-1, group))
    counts = None if importance is None else importance.unflatten(0, (-1, group))
    grid = Grid.fitted(groups, 4, symmetric, counts)
    return Rounded(grid, grid.round(groups))


def round_with_data(weight: torch.Tensor, moments: Moments, group: int, symmetric: bool) -> Rounded:
    """Round a weight to four bits so that on the data its results are closest to the target results.

    First a least-squares fit finds the float weight that gives the target results on the layer's inputs in
    the quantized model, which compensates for the errors of the layers before it. That weight is then
    rounded, the inputs with the largest mean square first, and each column's error is spread over the
    remaining columns by their correlation. The noisier the moments, the weaker both steps are, to avoid
    overfitting to the data.

    Args:
        weight: `[outputs, inputs]`, in float32.
        moments: the layer's moments on the data.
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
    """Return moments with their diagonal increased by a share of itself, and by a little of its mean."""
    own = squares.diagonal()
    return squares + (share * own + _DAMPING * own.mean()).diag()


def _round_columns(weight: torch.Tensor, squares: torch.Tensor, grid: Grid, group: int) -> torch.Tensor:
    """Return the integers of a weight, `[outputs, groups, group]`."""
    inputs = weight.shape[1]
    order = squares.diagonal().argsort(descending=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(squares[order][:, order]))
    spread = torch.linalg.cholesky(inverse, upper=True).float()
    # Transposed: each row is a column of the weight, contiguous, since columns are processed one by one.
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
