"""Model options shared by commands: `--inputs`, `--no-weights`, `--batch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from torchport.zoo import Model

Function = TypeVar("Function", bound=Callable[..., object])

# Shown at the end of the help of every command that takes a model.
MODEL_FORMS = """\b
MODEL is one of
  FILE.py::FUNCTION    a function that returns a module, or (module, args)
  torchvision:NAME     such as torchvision:resnet18
  timm:NAME            such as timm:vit_base_patch16_224
  hf:NAME_OR_DIR       a transformers model, from the hub or a folder
  hf-small:MODEL_TYPE  a transformers architecture in a small configuration
  hf-small-lm:MODEL_TYPE
                       the same with its language-model head
"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """How to load a model.

    Args:
        inputs: `FILE.py::FUNCTION` that returns the inputs, in place of the model's own.
        weights: whether to load pretrained weights.
        batch: the batch size of the inputs.
    """

    inputs: str | None
    weights: bool
    batch: int | None

    def load(self, name: str, *, without_values: bool = False) -> Model:
        """Load a model by name; with `without_values`, a library model is built on the meta device."""
        from torchport import zoo  # imported late, since it imports torch

        if without_values and "::" not in name and not name.endswith(".py"):
            return zoo.load(name, inputs=self.inputs, weights=False, batch=self.batch, device="meta")
        return zoo.load(name, inputs=self.inputs, weights=self.weights, batch=self.batch)


def model_options(function: Function) -> Function:
    """Add `--inputs`, `--no-weights` and `--batch`; the command takes them as a `ModelRequest`."""
    for option in reversed(
        (
            click.option("--inputs", metavar="FILE.py::FUNCTION", help="A function that returns the inputs."),
            click.option(
                "--no-weights",
                "weights",
                flag_value=False,
                default=True,
                help="Random weights; nothing is downloaded.",
            ),
            click.option(
                "--batch", type=click.IntRange(min=1), help="Batch size of a library model's inputs."
            ),
        )
    ):
        function = option(function)
    return function
