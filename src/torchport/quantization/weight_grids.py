"""The numbers that a weight is rounded to: a scale and a zero point for each row or group of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Ranges narrower than the weight's own: what is rounded better may outweigh what is clipped.
_NARROWER = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The numbers `(q - zero) * scale` for whole q between two limits, for each row along the last dimension.

    Args:
        scale, zero: of a shape that broadcasts to the weight's.
        low, high: the limits.
    """

    scale: torch.Tensor
    zero: torch.Tensor
    low: int
    high: int

    @classmethod
    def around(cls, weight: torch.Tensor, bits: int, symmetric: bool, narrower: float = 1.0) -> Grid:
        """Return the grid that spans all of a weight, or a part of that."""
        high = 2 ** (bits - 1) - 1
        low = -high - 1
        if symmetric and bits == 8:
            # -128 is left out, so that both ends are alike.
            scale = weight.abs().amax(-1, keepdim=True) * narrower / high
            return cls(_positive(scale), torch.zeros_like(scale), -high, high)
        if symmetric:
            # With few bits the end that has a step more counts: that is where the largest number goes.
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
        """Return the grid of the least squared error, among narrower and narrower ones.

        Args:
            weight: the weight.
            bits, symmetric: as in `around`.
            importance: what each error is multiplied by; of a shape that broadcasts to the weight's.
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
        """Return the grid with the scale that suits the whole numbers best, as bfloat16 holds it."""
        steps = self.round(weight) - self.zero
        squares = (counts * steps.square()).sum(-1, keepdim=True)
        scale = (counts * steps * weight).sum(-1, keepdim=True) / squares
        scale = torch.where((squares > 0) & (scale * self.scale > 0), scale, self.scale)
        return Grid(scale.to(torch.bfloat16).float(), self.zero, self.low, self.high)

    def round(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the whole numbers that are stored."""
        return ((weight / self.scale).round() + self.zero).clamp(self.low, self.high)

    def hold(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a weight, rounded."""
        return (self.round(weight) - self.zero) * self.scale


def _positive(scale: torch.Tensor) -> torch.Tensor:
    return scale.clamp_min(torch.finfo(torch.float32).tiny)
