"""A model and a way to compile its calls → a `Generation`."""

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
    """Return the `Generation` for a model: with or without an encoder.

    Args:
        model: a transformers model.
        compile_call: compiles a module for the sizes that may vary.
        max_length: the maximum number of tokens in a sequence, prompt and new tokens together.
        name: the model's name in messages.
        open_sizes: whether to use one program for any number of tokens, and caches that grow.
        form: the form of the model's cache, for a model loaded from a file.
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
