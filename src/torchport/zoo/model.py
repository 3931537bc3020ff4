"""A model and the inputs to run it on: the starting point of every later stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn


@dataclass(frozen=True, slots=True)
class Model:
    """A module, in evaluation mode, with example inputs.

    Args:
        name: the name that the user gave, such as `torchvision:resnet18`.
        module: the module.
        args: its positional inputs.
        kwargs: its keyword inputs.
    """

    name: str
    module: nn.Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict)
