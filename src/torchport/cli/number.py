"""A click type for finite numbers, as limits and rates must be."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A floating-point number, optionally within a range; `nan` and `inf` are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
