"""Builds modules whose parameters have no values, though other tensors do: for code that reads those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook


@contextmanager
def parameters_without_values() -> Iterator[None]:
    """Put every parameter on the meta device as its module takes it, before anyone has filled it.

    Some libraries compute sizes with tensors while they build a model, which the meta device as default would
    take the values from as well.
    """
    handle = register_module_parameter_registration_hook(_emptied)  # type: ignore[arg-type]  # None leaves it as it is
    try:
        yield
    finally:
        handle.remove()


def _emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    # A lazy one has no shape yet, and one that has been here before stays the same for all who share it.
    if parameter is None or type(parameter) is not nn.Parameter or parameter.is_meta:
        return None
    return nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
