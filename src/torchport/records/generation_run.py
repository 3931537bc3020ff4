"""Text that a compiled model generated, with the times and memory that it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchport.records.fallbacks import Fallbacks
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class GenerationSpeed(Record):
    """How fast tokens were generated.

    Args:
        first_token_time: seconds from the call to the first new token.
        tokens_per_second: the rate of the tokens after the first; None if there was only one.
    """

    first_token_time: float
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class GenerationRun(Record):
    """What a model generated from a prompt on a target.

    Args:
        model: the model's name.
        target: the target that it ran on.
        prompt: the prompt's tokens.
        tokens: the generated tokens.
        text: the generated tokens as text; empty if the model has no tokenizer.
        max_length: the most tokens that a sequence could have had.
        builds: how many programs were built.
        build_time: seconds until the first tokens were generated, builds included.
        speed: the compiled model's speed, once it is built.
        original: the original model's speed with eager torch, if it was measured.
        same_tokens: how many leading generated tokens equal those of the original model.
        memory: the process's peak memory in bytes; None where the system does not report it.
        fallbacks: how many calls fell back to eager torch.
        versions: the versions of Python, torch, torchport and the target's library.
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
