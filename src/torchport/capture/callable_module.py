"""What is captured is a module, of which all weights have shapes: a plain function becomes one."""

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
    """Return a module, or one that calls the function."""
    return model if isinstance(model, nn.Module) else CallableModule(model)


def check_not_lazy(module: nn.Module, name: str) -> None:
    """Refuse a module whose weights get their shapes by its first call.

    Raises:
        CaptureError: names the weight.
    """
    for path, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise CaptureError(
                f"the parameter {path} of a lazy module has no shape yet",
                where=name,
                remedy="call the model once on its inputs first",
            )
