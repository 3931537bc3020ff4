"""The grids that weights are rounded to: a scale and a zero point for each row or group."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Ranges narrower than the weight's own: the smaller rounding error may outweigh the clipping.
_NARROWER = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The values `(q - zero) * scale` for integers q between two limits, per row along the last dimension.

    Args:
        scale, zero: in shapes that broadcast to the weight's.
        low, high: the limits of q.
    """

    scale: torch.Tensor
    zero: torch.Tensor
    low: int
    high: int

    @classmethod
    def around(cls, weight: torch.Tensor, bits: int, symmetric: bool, narrower: float = 1.0) -> Grid:
        """Return the grid that spans the range of a weight, or a fraction of it."""
        high = 2 ** (bits - 1) - 1
        low = -high - 1
        if symmetric and bits == 8:
            # -128 is left out, so that the range is symmetric.
            scale = weight.abs().amax(-1, keepdim=True) * narrower / high
            return cls(_positive(scale), torch.zeros_like(scale), -high, high)
        if symmetric:
            # With few bits the extra negative step matters: the scale's sign maps the largest value to it.
            largest = weight.gather(-1, weight.abs().argmax(-1, keepdim=True))
            scale = largest * narrower / low
            scale = torch.where(scale < 0, -_positive(-scale), _positive(scale))
            return cls(scale, torch.zeros_like(scale), low, high)
        least = weight.amin(-1, keepdim=True).clamp_max(0) * narrower
        most = weight.amax(-1, keepdim=True).clamp_min(0) * narrower
        scale = _positive((most - least) / (high - low))
        return cls(scale, (low - least / scale).round().clamp(low, high), low, high)

    @classmethod
    def fitted(
        cls, weight: torch.Tensor, bits: int, symmetric: bool, importance: torch.Tensor | None = None
    ) -> Grid:
        """Return the grid with the least squared error among several range widths.

        Args:
            weight: the weight.
            bits, symmetric: as in `around`.
            importance: the weighting of each squared error, in a shape that broadcasts to the weight's.
        """
        counts = torch.ones(()) if importance is None else importance
        best, least = None, torch.empty(0)
        for narrower in _NARROWER:
            grid = cls.around(weight, bits, symmetric, narrower)._with_best_scale(weight, counts)
            error = (counts * (grid.hold(weight) - weight).square()).sum(-1, keepdim=True)
            if best is None:
                best, least = grid, error
                continue
            better = error < least
            least = torch.where(better, error, least)
            scale, zero = (
                torch.where(better, new, old)
                for new, old in ((grid.scale, best.scale), (grid.zero, best.zero))
            )
            best = cls(scale, zero, grid.low, grid.high)
        assert best is not None
        return best

    def _with_best_scale(self, weight: torch.Tensor, counts: torch.Tensor) -> Grid:
        """Return the grid with the scale that best fits the rounded integers, in bfloat16 precision."""
        steps = self.round(weight) - self.zero
        squares = (counts * steps.square()).sum(-1, keepdim=True)
        scale = (counts * steps * weight).sum(-1, keepdim=True) / squares
        scale = torch.where((squares > 0) & (scale * self.scale > 0), scale, self.scale)
        return Grid(scale.to(torch.bfloat16).float(), self.zero, self.low, self.high)

    def round(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the integers that are stored."""
        return ((weight / self.scale).round() + self.zero).clamp(self.low, self.high)

    def hold(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a weight rounded to the grid, dequantized."""
        return (self.round(weight) - self.zero) * self.scale


def _positive(scale: torch.Tensor) -> torch.Tensor:
    return scale.clamp_min(torch.finfo(torch.float32).tiny)
