"""The dry run of `generate`: which ops a target would take of a prompt piece, and of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torchport.compiler.explain_model import explain
from torchport.errors import CaptureError
from torchport.generation import can_generate
from torchport.records import DEFAULT_TARGET, Coverage, GenerationCoverage, GenerationForm

_PROMPT = 4  # tokens in the example prompt


def explain_generation(
    model: nn.Module,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    prompt: Mapping[str, torch.Tensor] | None = None,
    max_length: int | None = None,
    name: str = "",
) -> GenerationCoverage:
    """Report which ops of a model's `generate` calls a target would take, and why the rest would stay.

    The calls are those that `torchport.compile(model, …).generate` compiles, with one cache slot for each
    token. Nothing is built. A causal model may be on the meta device.

    Args:
        model: a transformers model that generates.
        target: the target's name.
        options: the target's options.
        prompt: the inputs of `generate`, such as `{"input_features": …}`; by default a few tokens.
        max_length: the maximum number of tokens in a sequence; 512 by default.
        name: the model's name in the record.

    Raises:
        CaptureError: the model does not generate, cannot be captured, needs a prompt that was not given, or
            has an encoder and is on the meta device.
        TargetError: there is no such target or option.

    Example:
        >>> found = explain_generation(zoo.load("hf-small-lm:gpt2", weights=False).module, max_length=32)
        >>> sorted(found.calls), found.complete
        (['prompt', 'step'], True)
    """
    where = name or type(model).__name__
    if not can_generate(model):
        raise CaptureError(
            "the model does not generate",
            where=where,
            remedy="use torchport.explain for a single run of the model",
        )
    from torchport.generation.generation import MAX_LENGTH
    from torchport.generation.make_generation import make_generation

    length = MAX_LENGTH if max_length is None else max_length
    if length < _PROMPT:
        raise CaptureError(
            f"max_length={length} is too small to generate",
            where=where,
            remedy=f"pass at least {_PROMPT}",
        )
    found: dict[str, Coverage] = {}

    def explaining(module: nn.Module, _: object) -> _Explained:
        return _Explained(module, found, target, options, where)

    form = _form(model, length, where) if _is_without_values(model) else None
    generation = make_generation(model, explaining, max_length=length, name=where, form=form)
    inputs = prompt
    if not inputs:
        inputs = _prompt(model, min(max(_PROMPT, generation.prompt_example), length - 2), where)
    generation.generate(**inputs, max_new_tokens=2, min_new_tokens=2, do_sample=False, num_beams=1)
    return GenerationCoverage(where, target, length, found)


class _Explained:
    """A call that is explained once for a prompt and once for a step, and run with eager torch."""

    def __init__(
        self,
        module: nn.Module,
        found: dict[str, Coverage],
        target: str,
        options: Mapping[str, object] | None,
        name: str,
    ) -> None:
        self._module = module
        self._found = found
        self._target = target
        self._options = options
        self._name = name

    def __call__(self, *args: Any) -> Any:
        is_meta = _is_without_values(self._module)
        if is_meta:
            args = _each(args, lambda tensor: tensor.to("meta"))
        kind = _kind_of(args)
        if kind not in self._found:
            name = f"{self._name} ({kind})"
            self._found[kind] = explain(
                self._module, args, target=self._target, options=self._options, name=name
            )
        result = self._module(*args)
        return _each(result, lambda tensor: torch.zeros_like(tensor, device="cpu")) if is_meta else result


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Map a function over all tensors in a call's arguments or results."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each(item, change) for key, item in value.items()}
    return type(value)(_each(item, change) for item in value) if isinstance(value, (list, tuple)) else value


def _kind_of(args: tuple[Any, ...]) -> str:
    if isinstance(args[0], Mapping):
        return "encoder"
    return "step" if args[0].shape[1] == 1 else "prompt"


def _is_without_values(model: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in model.parameters())


def _form(model: nn.Module, length: int, where: str) -> GenerationForm:
    """Return the form of the cache of a model on the meta device."""
    from torchport.generation.analyze_generation import cache_shapes
    from torchport.generation.generation import WIDTH
    from torchport.generation.shells import keeps_logits

    given: Any = model
    if given.config.is_encoder_decoder:
        raise CaptureError(
            "a model with an encoder cannot be explained on the meta device",
            where=where,
            remedy="build it on the CPU",
        )
    shapes = cache_shapes(given, where)
    return GenerationForm(
        max_length=length,
        width=min(WIDTH, length),
        layers=tuple((keys[1], keys[3], values[3]) for keys, values in shapes.values()),
        dtype=str(given.dtype).removeprefix("torch."),
        keeps_logits=keeps_logits(model),
    )


def _prompt(model: Any, length: int, where: str) -> dict[str, torch.Tensor]:
    """Return an example prompt of tokens."""
    if model.main_input_name != "input_ids":
        raise CaptureError(
            f"the model's encoder takes {model.main_input_name}, not tokens",
            where=where,
            remedy="pass prompt, the inputs of its generate",
        )
    device = "cpu" if _is_without_values(model) else model.device
    ids = torch.ones(1, length, dtype=torch.long, device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
