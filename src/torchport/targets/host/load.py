"""Reads what `build` wrote, and calls the ops one after another."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence

import safetensors.torch
import torch

from torchport.errors import TargetError
from torchport.targets.target import Artifact, Runner

FORMAT = 2  # raised whenever `build` writes something else than before


def load(artifact: Artifact) -> Runner:
    """Return a function that runs the island.

    Raises:
        TargetError: the artefact is of another format, or calls an op that this torch does not have.
    """
    if artifact.properties.get("format") != FORMAT:
        raise TargetError(
            f"the island has format {artifact.properties.get('format')!r}, not {FORMAT}",
            where="host",
            remedy="compile the model again with this version of torchport",
        )
    size = artifact.properties["program_bytes"]
    assert isinstance(size, int)
    program = json.loads(artifact.payload[:size].tobytes())
    weights = safetensors.torch.load(artifact.payload[size:].tobytes())
    weights.update({name: torch.view_as_complex(weights[name]) for name in program["complexes"]})
    calls = [(call["name"], _find(call["op"]), call["args"], call["kwargs"]) for call in program["calls"]]

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values: dict[str, object] = dict(zip(program["inputs"], arguments, strict=True))
        values.update(weights)
        for name, function, args, kwargs in calls:
            values[name] = function(
                *[_decode(argument, values) for argument in args],
                **{key: _decode(argument, values) for key, argument in kwargs.items()},
            )
        return [_decode(output, values) for output in program["outputs"]]  # type: ignore[misc]

    return run


def _find(name: str) -> Callable[..., object]:
    if name == "getitem":
        return operator.getitem
    space, op, overload = name.split(".")
    try:
        found = getattr(getattr(getattr(torch.ops, space), op), overload)
    except AttributeError as error:
        raise TargetError(
            f"this torch has no op {name}",
            where="host",
            remedy="import the library that defines it, or compile again",
        ) from error
    return found  # type: ignore[no-any-return]


def _decode(argument: object, values: dict[str, object]) -> object:
    if isinstance(argument, list):
        return [_decode(item, values) for item in argument]
    if not isinstance(argument, dict):
        return argument
    [(kind, value)] = argument.items()
    if kind == "node":
        return values[value]
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(*value)
    if kind == "device":
        return torch.device(value)
    return getattr(torch, value)
