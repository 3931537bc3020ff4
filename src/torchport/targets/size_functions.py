"""The Python functions on sizes that graphs with dynamic shapes call, by their names in files."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import torch

ON_SIZES: dict[str, Callable[..., object]] = {
    f"size.{function.__name__}": function
    for function in (
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.truediv,
        operator.mod,
        operator.neg,
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.and_,
        operator.or_,
        torch.sym_max,
        torch.sym_min,
        torch.sym_float,
        torch.sym_int,
        torch.sym_not,
        math.ceil,
        math.floor,
        math.trunc,
    )
}
NAMES_ON_SIZES = {function: name for name, function in ON_SIZES.items()}
