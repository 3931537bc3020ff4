"""Generates text with a model on a target, tokens as they come, and says how fast they came."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchport.bringup.machine import versions_for
from torchport.bringup.memory import peak_memory
from torchport.compiler import compile
from torchport.compiler.generating_model import GeneratingModel
from torchport.errors import SurveyError, one_line
from torchport.generation import can_generate
from torchport.packaging.load_model import load
from torchport.packaging.loaded_generation import LoadedGeneratingModel
from torchport.packaging.save_model import check_package_name, save
from torchport.records import DEFAULT_TARGET, GenerationRun, GenerationSpeed
from torchport.zoo.model import Model

_NUMBERS = re.compile(r"\s*\d+([\s,]+\d+)*\s*")


def run_generation(
    model: Model | str | os.PathLike[str],
    prompt: str,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    max_new_tokens: int = 32,
    max_length: int | None = None,
    compare: bool = False,
    output: str | os.PathLike[str] | None = None,
    on_text: Callable[[str], None] | None = None,
) -> GenerationRun:
    """Compile a model, generate from a prompt with it, the likeliest token each time, and time that.

    Args:
        model: what generates, as `zoo.load` returns it; or a file of `torchport.save`, which says all that is
            said of targets and lengths below.
        prompt: a text for a model that has a tokenizer, else the numbers of tokens: `"5 17 3"`.
        target, options: where it runs.
        max_new_tokens: how many tokens are wanted.
        max_length: prompt and new ones together, at most; by default just those of this prompt.
        compare: whether the model itself generates with eager torch too, to be compared and timed.
        output: a file that the compiled model is written to, as `torchport.save` does.
        on_text: is given each piece of text as it comes; numbers of tokens, where there is no tokenizer.

    Raises:
        TorchportError: the model does not generate, the prompt is none, or it cannot be compiled.
    """
    wanted = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1}
    if max_new_tokens < 1:
        raise SurveyError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    if isinstance(model, (str, os.PathLike)):
        if compare or output is not None:
            raise SurveyError(
                "a file holds no model to compare with or to compile",
                where=os.fspath(model),
                remedy="name the model",
            )
        return _run_file(model, prompt, wanted, on_text)
    if output is not None:
        check_package_name(Path(output))  # before minutes are spent on compiling
    check_generates(model)
    tokenizer, ids = _tokens(model.name, _vocabulary(model.module), prompt)
    length = max_length or ids.shape[1] + max_new_tokens
    start = time.perf_counter()
    compiled = compile(
        model.module, (ids,), target=target, options=options, name=model.name, max_length=length
    )
    assert isinstance(compiled, GeneratingModel)  # who cannot generate is refused with `max_length`
    compiled.generate(ids, **{**wanted, "max_new_tokens": min(2, max_new_tokens)})
    build_time = time.perf_counter() - start
    heard = Listener(tokenizer, on_text)
    result = compiled.generate(ids, streamer=heard, **wanted)
    tokens = tuple(result[0].tolist())[-heard.count :]
    memory = peak_memory()
    original, same = None, None
    if compare:
        model.module.generate(ids, **{**wanted, "max_new_tokens": min(2, max_new_tokens)})  # type: ignore[operator]  # one that generates
        eager = Listener(None, None)
        expected = model.module.generate(ids, streamer=eager, **wanted)[0].tolist()[-eager.count :]  # type: ignore[operator]  # as above
        original = eager.speed
        same = same_tokens(tokens, expected)
    if output is not None:
        save(compiled, output)
    return GenerationRun(
        model=model.name,
        target=target,
        prompt=tuple(ids[0].tolist()),
        tokens=tokens,
        text=tokenizer.decode(tokens, skip_special_tokens=True) if tokenizer else "",
        max_length=length,
        builds=len(compiled.generation_programs),
        build_time=build_time,
        speed=heard.speed,
        original=original,
        same_tokens=same,
        memory=memory,
        fallbacks=compiled.fallbacks,
        versions=versions_for(target),
    )


def _run_file(
    path: str | os.PathLike[str],
    prompt: str,
    wanted: Mapping[str, Any],
    on_text: Callable[[str], None] | None,
) -> GenerationRun:
    """Generate with a model from a file: nothing is built, and loading takes the place of it."""
    start = time.perf_counter()
    loaded = load(path)
    if not isinstance(loaded, LoadedGeneratingModel):
        raise SurveyError(
            "the file holds a model's forward, and not what generate needs",
            where=os.fspath(path),
            remedy="write it with torchport generate MODEL --prompt TEXT -o FILE",
        )
    name, target = loaded.package.model, loaded.package.target
    tokenizer, ids = _tokens(name, loaded.vocabulary, prompt, of_file=True)
    loaded.generate(ids, **{**wanted, "max_new_tokens": min(2, wanted["max_new_tokens"])})
    build_time = time.perf_counter() - start
    heard = Listener(tokenizer, on_text)
    result = loaded.generate(ids, streamer=heard, **wanted)
    tokens = tuple(result[0].tolist())[-heard.count :]
    return GenerationRun(
        model=name,
        target=target,
        prompt=tuple(ids[0].tolist()),
        tokens=tokens,
        text=tokenizer.decode(tokens, skip_special_tokens=True) if tokenizer else "",
        max_length=loaded.form.max_length,
        builds=0,
        build_time=build_time,
        speed=heard.speed,
        memory=peak_memory(),
        fallbacks=loaded.fallbacks,
        versions=versions_for(target),
    )


def same_tokens(tokens: Sequence[int], expected: Sequence[int]) -> int:
    """Return how many tokens are the same, from the first on; one row may end earlier."""
    pairs = enumerate(zip(tokens, expected))  # noqa: B905  # as said
    differing = (index for index, pair in pairs if pair[0] != pair[1])
    return next(differing, min(len(tokens), len(expected)))


def check_generates(model: Model) -> None:
    """Refuse a model that does not generate.

    Raises:
        SurveyError: says which would.
    """
    if not can_generate(model.module):
        raise SurveyError(
            "the model does not generate",
            where=model.name,
            remedy="name one of transformers' with a head for language, such as hf-small-lm:gpt2",
        )


def _vocabulary(module: object) -> object:
    return getattr(getattr(module, "config", None), "vocab_size", None)


def _tokens(
    model: str, vocabulary: object, prompt: str, *, of_file: bool = False
) -> tuple[Any, torch.Tensor]:
    """Return the tokenizer of a model of that name, if the prompt is a text, and the prompt's tokens.

    A name that a file says has nothing fetched: the tokenizer must be on this machine.
    """
    if _NUMBERS.fullmatch(prompt):
        ids = [int(number) for number in re.findall(r"\d+", prompt)]
        beyond = [number for number in ids if isinstance(vocabulary, int) and number >= vocabulary]
        if beyond:
            raise SurveyError(
                f"the prompt names the token {beyond[0]}, and the model has {vocabulary}", where=model
            )
        return None, torch.tensor([ids])
    remedy = 'give the numbers of tokens, such as "5 17 3"'
    if of_file and model.startswith("hf:"):
        remedy += "; a file has nothing fetched: `hf download NAME` gets a tokenizer that you trust"
    scheme, _, name = model.partition(":")
    if not prompt.strip():
        raise SurveyError("the prompt is empty", where=model, remedy=remedy)
    if scheme != "hf":
        raise SurveyError("the model has no tokenizer, and the prompt is a text", where=model, remedy=remedy)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=of_file)
        return tokenizer, tokenizer(prompt, return_tensors="pt").input_ids
    except Exception as error:  # a hub that is not there, files that are not a tokenizer's
        raise SurveyError(
            f"its tokenizer cannot be loaded: {one_line(error)}", where=model, remedy=remedy
        ) from error


class Listener:
    """A streamer of the library's: hears of each token when it comes."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None) -> None:
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._times = [time.perf_counter()]
        self._tokens: list[int] = []
        self._said = ""

    @property
    def count(self) -> int:
        """How many new tokens came."""
        return len(self._tokens)

    @property
    def speed(self) -> GenerationSpeed:
        """How fast they came; the call began when this was made."""
        first, last = self._times[2], self._times[-1]
        rate = (self.count - 1) / (last - first) if last > first else None
        return GenerationSpeed(first - self._times[0], rate)

    def put(self, value: torch.Tensor) -> None:
        """Hear of tokens; the first are the prompt."""
        self._times.append(time.perf_counter())
        if len(self._times) == 2:
            return
        self._tokens += value.flatten().tolist()
        if self._on_text is None:
            return
        if self._tokenizer is None:
            self._on_text(f"{self._tokens[-1]} ")
            return
        text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        if not text.endswith("\ufffd"):  # a sign may take several tokens
            self._on_text(text[len(self._said) :])
            self._said = text

    def end(self) -> None:
        """Hear that there are no more."""
