"""The layout of an island built for ttnn: what `build` writes and `load` reads.

The payload is the program as JSON, then its weights as safetensors. The properties are:

- `format`: `ttnn_program.FORMAT`;
- `program_bytes`: the length of the JSON;
- `input_ranges`: the bounds that integer inputs must lie within, by input index;
- `estimated_seconds`: how long a run takes on the chip, according to `estimate.py`;
- `peak_bytes`: the program's peak device memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import torch

from torchport.errors import RecordError, TargetError, one_line
from torchport.records import parse_json
from torchport.targets.artifact_properties import check_format, read_number
from torchport.targets.safetensors_file import (
    ALIGNMENT,
    read_safetensors,
    safetensors_bytes,
    tensor_places,
)
from torchport.targets.target import Artifact
from torchport.targets.ttnn import simulator  # noqa: F401  # a program is checked against the registry that this fills
from torchport.targets.ttnn.program_check import read_program
from torchport.targets.ttnn.ttnn_program import FORMAT, TtnnProgram

_REMEDY = "compile the model again"


def pack(
    program: TtnnProgram,
    weights: dict[str, torch.Tensor],
    values: Callable[[str], torch.Tensor],
    properties: dict[str, object],
) -> Artifact:
    """Return a program and its weights as an artefact.

    Args:
        program: the program.
        weights: its weights' shapes and dtypes, by name.
        values: returns the values of the weight with a name.
        properties: further properties of the artefact.
    """
    text = json.dumps(program.to_json()).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    payload = safetensors_bytes(weights, after=text, values=values)
    return Artifact(payload, {"format": FORMAT, "program_bytes": len(text), **properties})


def weight_places(artifact: Artifact) -> list[tuple[int, int]]:
    """Return where the weights lie in the payload, as starts and lengths."""
    size = read_number(artifact.properties, "program_bytes", artifact.payload.size, "ttnn")
    return [(size + start, length) for start, length in tensor_places(artifact.payload[size:])]


def unpack(artifact: Artifact) -> tuple[TtnnProgram, dict[str, torch.Tensor]]:
    """Return the program and the weights of an artefact, both checked: they may come from an untrusted file.

    Raises:
        TargetError: the artefact has another format, or is damaged.
    """
    check_format(artifact.properties, FORMAT, "ttnn")
    size = read_number(artifact.properties, "program_bytes", artifact.payload.size, "ttnn")
    try:
        program = read_program(parse_json(artifact.payload[:size].tobytes(), "the program"))
        weights = read_safetensors(artifact.payload[size:])
    except (ValueError, RecordError, TargetError) as error:
        raise TargetError(
            f"the island's program or weights cannot be read: {one_line(error)[:300]}",
            where="ttnn",
            remedy=_REMEDY,
        ) from error
    _check_weights(program, weights)
    return program, weights


def _check_weights(program: TtnnProgram, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse a program with a weight that is missing or has the wrong shape.

    Raises:
        TargetError: names the first such weight.
    """
    for weight in program.weights:
        found = weights.get(weight.name)
        if found is None or tuple(found.shape) != weight.tensor.shape:
            shape = "missing" if found is None else f"of the shape {list(found.shape)}"
            raise TargetError(
                f"the weight {weight.name} is {shape}, not {weight.tensor}", where="ttnn", remedy=_REMEDY
            )
