"""Generates text with a model on a target, streaming tokens, and measures the speed."""

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
    """Compile a model, generate from a prompt with it by greedy decoding, and time that.

    Args:
        model: the model, as `zoo.load` returns it; or a file from `torchport.save`, which determines target,
            options and maximum length itself.
        prompt: text, for a model that has a tokenizer, or token ids: `"5 17 3"`.
        target, options: where to run it, and with which options.
        max_new_tokens: how many tokens to generate.
        max_length: the maximum sequence length to build for; by default the prompt's plus `max_new_tokens`.
        compare: whether to generate with eager torch too, and compare tokens and times.
        output: a file to write the compiled model to, as `torchport.save` does.
        on_text: is called with each piece of text as it is generated; with token ids, if the prompt is ids.

    Raises:
        TorchportError: the model does not generate, the prompt is invalid, or the model cannot be compiled.
    """
    wanted = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1}
    if max_new_tokens < 1:
        raise SurveyError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    if isinstance(model, (str, os.PathLike)):
        if compare or output is not None:
            raise SurveyError(
                "a file contains no model to compare with or to compile",
                where=os.fspath(model),
                remedy="pass the model's name",
            )
        return _run_file(model, prompt, wanted, on_text)
    if output is not None:
        check_package_name(Path(output))  # before spending minutes on compiling
    check_generates(model)
    tokenizer, ids = _tokens(model.name, _vocabulary(model.module), prompt)
    length = max_length or ids.shape[1] + max_new_tokens
    start = time.perf_counter()
    compiled = compile(
        model.module, (ids,), target=target, options=options, name=model.name, max_length=length
    )
    assert isinstance(compiled, GeneratingModel)  # `compile` refuses `max_length` for other models
    compiled.generate(ids, **{**wanted, "max_new_tokens": min(2, max_new_tokens)})
    build_time = time.perf_counter() - start
    heard = Listener(tokenizer, on_text)
    result = compiled.generate(ids, streamer=heard, **wanted)
    tokens = tuple(result[0].tolist())[-heard.count :]
    memory = peak_memory()
    original, same = None, None
    if compare:
        model.module.generate(ids, **{**wanted, "max_new_tokens": min(2, max_new_tokens)})  # type: ignore[operator]  # `check_generates` has passed
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
    """Generate with a model from a file: it is loaded, not built."""
    start = time.perf_counter()
    loaded = load(path)
    if not isinstance(loaded, LoadedGeneratingModel):
        raise SurveyError(
            "the file contains a model's forward, but not what generate needs",
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
    """Return the length of the common prefix; the sequences may have different lengths."""
    pairs = enumerate(zip(tokens, expected))  # noqa: B905  # lengths may differ
    differing = (index for index, pair in pairs if pair[0] != pair[1])
    return next(differing, min(len(tokens), len(expected)))


def check_generates(model: Model) -> None:
    """Refuse a model that does not generate.

    Raises:
        SurveyError: the model does not generate.
    """
    if not can_generate(model.module):
        raise SurveyError(
            "the model does not generate",
            where=model.name,
            remedy="use a transformers model with a language-model head, such as hf-small-lm:gpt2",
        )


def _vocabulary(module: object) -> object:
    return getattr(getattr(module, "config", None), "vocab_size", None)


def _tokens(
    model: str, vocabulary: object, prompt: str, *, of_file: bool = False
) -> tuple[Any, torch.Tensor]:
    """Return the model's tokenizer, or None if the prompt is token ids, and the prompt's tokens.

    For a name from a file nothing is downloaded: the tokenizer must be on this machine.
    """
    if _NUMBERS.fullmatch(prompt):
        ids = [int(number) for number in re.findall(r"\d+", prompt)]
        beyond = [number for number in ids if isinstance(vocabulary, int) and number >= vocabulary]
        if beyond:
            raise SurveyError(
                f"the prompt has the token id {beyond[0]}, but the model has only {vocabulary} tokens",
                where=model,
            )
        return None, torch.tensor([ids])
    remedy = 'pass token ids, such as "5 17 3"'
    if of_file and model.startswith("hf:"):
        remedy += "; nothing is downloaded for a file: get a tokenizer that you trust with `hf download NAME`"
    scheme, _, name = model.partition(":")
    if not prompt.strip():
        raise SurveyError("the prompt is empty", where=model, remedy=remedy)
    if scheme != "hf":
        raise SurveyError("the prompt is text, but the model has no tokenizer", where=model, remedy=remedy)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=of_file)
        return tokenizer, tokenizer(prompt, return_tensors="pt").input_ids
    except Exception as error:  # an unreachable hub, files that are not a tokenizer's
        raise SurveyError(
            f"its tokenizer cannot be loaded: {one_line(error)}", where=model, remedy=remedy
        ) from error


class Listener:
    """A transformers streamer that records when each token arrives."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None) -> None:
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._times = [time.perf_counter()]
        self._tokens: list[int] = []
        self._said = ""

    @property
    def count(self) -> int:
        """How many new tokens have arrived."""
        return len(self._tokens)

    @property
    def speed(self) -> GenerationSpeed:
        """The speed of generation; the call is assumed to start when this listener is created."""
        first, last = self._times[2], self._times[-1]
        rate = (self.count - 1) / (last - first) if last > first else None
        return GenerationSpeed(first - self._times[0], rate)

    def put(self, value: torch.Tensor) -> None:
        """Receive tokens; the first call receives the prompt."""
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
        if not text.endswith("\ufffd"):  # a character may take several tokens
            self._on_text(text[len(self._said) :])
            self._said = text

    def end(self) -> None:
        """Do nothing: generation has ended."""
