"""A model and a way to compile its calls → what it generates with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from torchport.generation.encoder_decoder import EncoderDecoderGeneration
from torchport.generation.generation import MAX_LENGTH, Generation
from torchport.records import GenerationForm


def make_generation(
    model: Any,
    compile_call: Callable[[nn.Module], Any],
    *,
    max_length: int | None,
    name: str,
    form: GenerationForm | None = None,
) -> Generation:
    """Return what a model generates with.

    Args:
        model: the model, one of transformers'.
        compile_call: compiles a module for whatever inputs it is called with.
        max_length: how many tokens a sequence may have, prompt and new ones together.
        name: the model's name in messages.
        form: of a model from a file: the form of its cache.
    """
    kind = EncoderDecoderGeneration if model.config.is_encoder_decoder else Generation
    return kind(model, compile_call, max_length=max_length or MAX_LENGTH, name=name, form=form)
