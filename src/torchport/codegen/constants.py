"""Writes Python values as code that evaluates to them."""

from __future__ import annotations

import enum
import math

import torch

from torchport.codegen.code import Code, Group, Literal, is_name, text
from torchport.codegen.imports import Imports
from torchport.errors import CodegenError


def constant(value: object, imports: Imports, hint: str = "") -> Code:
    """Return the code of a value.

    Raises:
        CodegenError: the value cannot be written as code.
    """
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return ("..." if value is Ellipsis else repr(value),)
    if isinstance(value, enum.Enum):
        kind = imports.name_of(type(value))
        return (f"{kind}.{value.name}" if is_name(value.name) else f"{kind}[{text(value.name)}]",)
    if isinstance(value, (int, float)):
        return (Literal(number(value), hint),)
    if isinstance(value, complex):
        return (complex.__repr__(value),)
    if isinstance(value, str):
        return (text(value),)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return (repr(value),)
    if isinstance(value, torch.device):
        return (f"torch.device({text(str(value))})",)
    if isinstance(value, (list, tuple)):
        items = tuple(constant(item, imports, hint) for item in value)
        if isinstance(value, list):
            return (Group("[", items, "]", literal=True),)
        return (Group("(", items, ")", comma=len(items) == 1, literal=True),)
    if isinstance(value, dict):
        entries = tuple((*constant(k, imports), ": ", *constant(v, imports, hint)) for k, v in value.items())
        return (Group("{", entries, "}", literal=True),)
    if isinstance(value, type) or callable(value):
        return (imports.name_of(value),)
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a NumPy scalar
        return constant(value.item(), imports, hint)
    raise CodegenError(
        f"a {type(value).__name__} cannot be written as code",
        where=hint,
        remedy="have the model use numbers, strings, tensors and containers of them",
    )


def number(value: int | float) -> str:
    """Return a number as Python source code."""
    if isinstance(value, float):
        if math.isinf(value):
            return 'float("inf")' if value > 0 else '-float("inf")'
        if math.isnan(value):
            return 'float("nan")'
        return repr(float(value)).replace("e+", "e")
    return repr(int(value))
