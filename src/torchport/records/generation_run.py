"""Text that a compiled model generated, and what that took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchport.records.fallbacks import Fallbacks
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class GenerationSpeed(Record):
    """How fast tokens came.

    Args:
        first_token_time: seconds from the call to the first new token.
        tokens_per_second: of the tokens after the first; None if there was only one.
    """

    first_token_time: float
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class GenerationRun(Record):
    """What a model generated from a prompt on a target.

    Args:
        model, target: what ran where.
        prompt: the prompt's tokens.
        tokens: the new ones.
        text: what they read, where the model has a tokenizer; else empty.
        max_length: how many tokens a sequence could have had.
        builds: how many programs were built.
        build_time: seconds until the first tokens were there, builds included.
        speed: of the compiled model, once it is built.
        original: of the model itself with eager torch, if that was asked for.
        same_tokens: how many of the new tokens, from the first on, are those of the model itself.
        memory: the most bytes that the process held in memory; None where the system does not say.
        fallbacks: how many calls eager torch ran after all.
        versions: of python, torch, torchport and the target's library.
    """

    schema: ClassVar[str] = "torchport.generation_run/1"

    model: str
    target: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    max_length: int
    builds: int
    build_time: float
    speed: GenerationSpeed
    original: GenerationSpeed | None = None
    same_tokens: int | None = None
    memory: int | None = None
    fallbacks: Fallbacks | None = None
    versions: dict[str, str] = field(default_factory=dict)
