"""Prepares what is to be captured: wraps a plain function in a module, and refuses lazy modules."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.parameter import is_lazy

from torchport.errors import CaptureError


class CallableModule(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the function."""
        return self.function(*args, **kwargs)


def as_module(model: nn.Module | Callable[..., object]) -> nn.Module:
    """Return a module as is; wrap a function in a module that calls it."""
    return model if isinstance(model, nn.Module) else CallableModule(model)


def check_not_lazy(module: nn.Module, name: str) -> None:
    """Refuse a lazy module, whose parameters get their shapes on the first call.

    Raises:
        CaptureError: a parameter has no shape yet; the message names it.
    """
    for path, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise CaptureError(
                f"the parameter {path} of a lazy module has no shape yet",
                where=name,
                remedy="call the model once on its inputs first",
            )
