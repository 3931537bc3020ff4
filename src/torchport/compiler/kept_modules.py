"""Validates the option `keep_modules`: each path must name a module of the model."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from torchport.errors import TargetError, nearest
from torchport.targets import Options


def check_kept_modules(model: nn.Module | Callable[..., object], options: Options, where: str) -> None:
    """Check that each path in `keep_modules` is a module of the model.

    Raises:
        TargetError: a path is not a module; suggests the nearest.
    """
    if not isinstance(model, nn.Module):
        return  # the module paths of a function are not known
    known = {path for path, _ in model.named_modules(remove_duplicate=False) if path}
    for path in options.keep_modules:
        if path not in known:
            raise TargetError(
                f"the option keep_modules names {path!r}, and the model has no such module",
                where=where or type(model).__name__,
                remedy=nearest(path, known),
            )
