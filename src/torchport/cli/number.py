"""Numbers on a command line: finite ones, which a limit or a rate must be."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A floating-point number, perhaps within a range; `nan` and `inf` are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
