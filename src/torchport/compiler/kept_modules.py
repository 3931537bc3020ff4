"""Refuses the option `keep_modules` where it names no module of the model."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from torchport.errors import TargetError, nearest
from torchport.targets import Options


def check_kept_modules(model: nn.Module | Callable[..., object], options: Options, where: str) -> None:
    """Make sure that each path in `keep_modules` is a module of the model.

    Raises:
        TargetError: one is not; names the nearest.
    """
    if not isinstance(model, nn.Module):
        return  # a function's modules have no paths that could be listed
    known = {path for path, _ in model.named_modules(remove_duplicate=False) if path}
    for path in options.keep_modules:
        if path not in known:
            raise TargetError(
                f"the option keep_modules names {path!r}, and the model has no such module",
                where=where or type(model).__name__,
                remedy=nearest(path, known),
            )
