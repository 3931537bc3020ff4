"""Builds modules whose parameters have no values while other tensors do, for code that reads the latter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook


@contextmanager
def parameters_without_values() -> Iterator[None]:
    """Move every parameter to the meta device when its module registers it, before it is initialized.

    Some libraries compute sizes with tensors while they build a model; making meta the default device would
    remove the values of those tensors as well.
    """
    handle = register_module_parameter_registration_hook(_moved_to_meta)  # type: ignore[arg-type]  # None keeps the parameter
    try:
        yield
    finally:
        handle.remove()


def _moved_to_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    # A lazy parameter has no shape yet; one already on meta must stay the same object where it is shared.
    if parameter is None or type(parameter) is not nn.Parameter or parameter.is_meta:
        return None
    return nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
