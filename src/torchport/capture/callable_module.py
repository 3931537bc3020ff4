"""Lets a plain function stand where a module is wanted."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


class CallableModule(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the function."""
        return self.function(*args, **kwargs)


def as_module(model: nn.Module | Callable[..., object]) -> nn.Module:
    """Return a module, or one that calls the function."""
    return model if isinstance(model, nn.Module) else CallableModule(model)
