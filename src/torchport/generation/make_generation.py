"""A model and a way to compile its calls → what it generates with."""

from __future__ import annotations

from typing import Any

from torchport.generation.encoder_decoder import EncoderDecoderGeneration
from torchport.generation.generation import MAX_LENGTH, Compile, Generation
from torchport.records import GenerationForm


def make_generation(
    model: Any,
    compile_call: Compile,
    *,
    max_length: int | None,
    name: str,
    open_sizes: bool = False,
    form: GenerationForm | None = None,
) -> Generation:
    """Return what a model generates with.

    Args:
        model: the model, one of transformers'.
        compile_call: compiles a module for the sizes that may vary.
        max_length: how many tokens a sequence may have, prompt and new ones together.
        name: the model's name in messages.
        open_sizes: whether one program is wanted for all numbers of tokens, and caches that grow.
        form: of a model from a file: the form of its cache.
    """
    kind = EncoderDecoderGeneration if model.config.is_encoder_decoder else Generation
    return kind(
        model,
        compile_call,
        max_length=max_length or MAX_LENGTH,
        name=name,
        open_sizes=open_sizes,
        form=form,
    )
