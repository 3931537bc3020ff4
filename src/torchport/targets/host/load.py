"""Reads what `build` wrote, and calls the ops one after another."""

from __future__ import annotations

import json
from collections.abc import Sequence

import safetensors.torch
import torch

from torchport.errors import TargetError
from torchport.targets.op_calls import decode, find_op
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
    calls = [(call["name"], find_op(call["op"]), call["args"], call["kwargs"]) for call in program["calls"]]

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values: dict[str, object] = dict(zip(program["inputs"], arguments, strict=True))
        values.update(weights)
        for name, function, args, kwargs in calls:
            values[name] = function(
                *[decode(argument, values) for argument in args],
                **{key: decode(argument, values) for key, argument in kwargs.items()},
            )
        return [decode(output, values) for output in program["outputs"]]  # type: ignore[misc]

    return run
