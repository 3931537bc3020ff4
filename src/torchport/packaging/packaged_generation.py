"""Collects how a compiled model generates, as data for a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.specialise import Specialised
from torchport.errors import CompileError, PackageError, one_line
from torchport.packaging.library_model import ATTENTIONS
from torchport.packaging.structure_json import class_name
from torchport.records import PackagedGeneration
from torchport.runtime.input_kind import InputKind, LeafKey


def generation_calls(compiled: GeneratingModel) -> list[tuple[Specialised, ...]]:
    """Return the programs of each call of `generate`, building them if nothing of the model is built.

    Raises:
        PackageError: a weight changed after they were built, or the model generates on another device.
    """
    if not compiled.generation_programs:
        if compiled.built_programs:
            return []  # the model was only called: save just its forward
        _refuse_other_devices(compiled)
        try:
            compiled.build_generation()
        except CompileError:  # its state is not a supported KV cache, but its forward can be saved
            return []
    _refuse_other_devices(compiled)
    calls = [call.built_programs for call in compiled.generation.calls]
    if len(calls) == 1:  # a one-token prompt compiles only steps; a single chunk compiles no step
        widths: dict[int, set[int]] = {}
        for program in calls[0]:
            widths.setdefault(program.kind.keys[0][0][0], set()).update(_widths(program.kind))
        for batch in [batch for batch, found in widths.items() if len(found) < 2]:
            compiled.build_generation(batch)
        calls = [compiled.generation.calls[0].built_programs]
    if not all(calls):
        raise PackageError(
            "a weight changed after the model was compiled",
            where=type(compiled.original).__name__,
            remedy="call generate once to compile it again, then save it",
        )
    return calls


def _refuse_other_devices(compiled: GeneratingModel) -> None:
    """Refuse a model that generates on another device: a loaded file keeps its KV cache on the CPU."""
    model: Any = compiled.original
    if model.device.type != "cpu":
        raise PackageError(
            f"the model generates on {model.device}, but a saved model generates on the CPU",
            where=type(model).__name__,
            remedy="save a model that was compiled on the CPU, or one that was called but has not generated",
        )


def _widths(kind: InputKind) -> list[int]:
    """Return the token counts that a program takes; if it takes any, those of a step (1) and a chunk (2)."""
    width = kind.keys[0][0][1]
    if width >= 0:
        return [width]
    return [width for width in (1, 2) if kind.fits_leaves([_example(key, width) for key in kind.keys])]


def _example(key: LeafKey, width: int) -> torch.Tensor:
    """Return an uninitialized tensor of a kind."""
    shape = [width if size < 0 else size for size in key[0]]
    return torch.empty(shape, dtype=key[1], device=key[2])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def package_generation(
    compiled: GeneratingModel, calls: Sequence[Sequence[Specialised]], first: int
) -> PackagedGeneration:
    """Return the data that a loaded file needs to generate.

    Args:
        compiled: the compiled model.
        calls: the programs of each call.
        first: the index of the first of these programs in the package.

    Raises:
        PackageError: the model's attention implementation may not be requested by a file, or its settings
            are no data.
    """
    model: Any = compiled.original
    attention = str(model.config._attn_implementation)
    if attention not in ATTENTIONS:
        raise PackageError(
            f"the model's attention implementation is {attention!r}, which a file may not request",
            remedy=f"load it with attn_implementation={ATTENTIONS[0]!r}",
        )
    places = iter(range(first, first + sum(map(len, calls))))
    paths = [path for program in calls[0] for path in program.kind.structure.paths]
    form = compiled.generation.describe(positions=any("position_ids" in path for path in paths))
    return PackagedGeneration(
        form=form,
        calls=tuple(tuple(next(places) for _ in programs) for programs in calls),
        model_class=class_name(type(model)),
        attention=attention,
        config={**_as_data(model.config, "config"), "dtype": _name(model.dtype)},
        generation_config=_settings(model.generation_config),
    )


def _as_data(config: Any, name: str) -> dict[str, object]:
    try:
        return dict(json.loads(config.to_json_string(use_diff=False)))
    except (TypeError, ValueError, RecursionError) as error:  # what a user set may be anything
        raise PackageError(
            f"the model's {name} cannot be written as JSON: {one_line(error)}",
            remedy=f"remove what is no plain value from model.{name}",
        ) from error


def _settings(config: Any) -> dict[str, object]:
    """Return the settings of `generate` as data, in the form in which transformers takes each from a file."""
    settings = _as_data(config, "generation_config")
    bias = config.sequence_bias
    if isinstance(bias, Mapping):  # by tuples of tokens
        settings["sequence_bias"] = [[list(tokens), added] for tokens, added in bias.items()]
    return settings
