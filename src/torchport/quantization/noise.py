"""The noise of a quantized tensor compared with its float original: SQNR and PCC, accumulated over items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

# The variance, relative to the power, below which a signal is constant: less is rounding error of the sums.
_CONSTANT = 1e-12


@dataclass(slots=True)
class Noise:
    """Sums over elements, from which SQNR and PCC follow; the tensors themselves are not kept."""

    count: int = 0
    signal: float = 0.0
    error: float = 0.0
    total: float = 0.0
    other_total: float = 0.0
    other_signal: float = 0.0
    product: float = 0.0

    def add(self, quantized: torch.Tensor, expected: torch.Tensor) -> None:
        """Add a pair of tensors."""
        ours, theirs = quantized.detach().double().flatten(), expected.detach().double().flatten()
        difference = ours - theirs
        error = float(difference @ difference)
        if not math.isfinite(error):
            # Infinities, as in a mask, and NaN are ignored where both tensors have them.
            finite = ours.isfinite() & theirs.isfinite()
            same = (ours == theirs) | (ours.isnan() & theirs.isnan())
            error = math.inf if not bool((finite | same).all()) else float(difference[finite].square().sum())
            ours, theirs = ours[finite], theirs[finite]
        self.count += theirs.numel()
        self.signal += float(theirs @ theirs)
        self.other_signal += float(ours @ ours)
        self.product += float(ours @ theirs)
        self.total += float(theirs.sum())
        self.other_total += float(ours.sum())
        self.error += error

    @property
    def sqnr(self) -> float:
        """The signal's power over the error's, in decibels; infinite without an error."""
        if self.error == 0.0:
            return math.inf
        if self.error == math.inf:  # a number became infinite, or NaN
            return -math.inf
        return 10.0 * math.log10(self.signal / self.error) if self.signal > 0.0 else -math.inf

    @property
    def pcc(self) -> float:
        """The Pearson correlation coefficient of the two.

        For a constant signal it is undefined: then it is estimated from the powers of signal and error.
        """
        if self.error == math.inf:
            return 0.0
        if self.error == 0.0 or self.count == 0:
            return 1.0
        if self.signal - self.total**2 / self.count <= _CONSTANT * self.signal:
            return math.sqrt(self.signal / (self.signal + self.error))
        both = self.product - self.total * self.other_total / self.count
        spread = (self.signal - self.total**2 / self.count) * (
            self.other_signal - self.other_total**2 / self.count
        )
        return max(-1.0, min(1.0, both / math.sqrt(spread))) if spread > 0.0 else 0.0


@dataclass(slots=True)
class ResultNoise:
    """The noise of each of a model's results. The model is judged by the worst of them.

    Accumulated together, a large result, such as logits, would hide the error of a small one, such as boxes.
    """

    parts: list[Noise] = field(default_factory=list)

    def add(self, ours: Sequence[object], theirs: Sequence[object]) -> None:
        """Add the floating-point results of a call."""
        self.parts += [Noise() for _ in range(len(theirs) - len(self.parts))]
        for noise, one, other in zip(self.parts, ours, theirs, strict=False):
            if (
                isinstance(one, torch.Tensor)
                and isinstance(other, torch.Tensor)
                and other.is_floating_point()
            ):
                noise.add(one, other)

    @property
    def count(self) -> int:
        """How many values were compared."""
        return sum(noise.count for noise in self.parts)

    @property
    def error(self) -> float:
        """The power of all errors."""
        return sum(noise.error for noise in self.parts)

    @property
    def sqnr(self) -> float:
        """The lowest SQNR among the results."""
        return min((noise.sqnr for noise in self.parts), default=math.inf)

    @property
    def pcc(self) -> float:
        """The lowest PCC among the results."""
        return min((noise.pcc for noise in self.parts), default=1.0)
