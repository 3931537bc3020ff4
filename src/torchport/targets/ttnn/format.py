"""The layout of an island built for ttnn: what `build` writes and `load` reads.

The payload is the program as JSON, then its weights as safetensors. The properties are:

- `format`: the number below;
- `program_bytes`: where the JSON ends;
- `input_ranges`: which integer inputs must lie within which bounds, by their indices;
- `estimated_seconds`: how long a run takes on the chip, by `estimate.py`;
- `peak_bytes`: the most memory of the device's that it takes.
"""

from __future__ import annotations

import json

import numpy
import safetensors.torch
import torch

from torchport.errors import TargetError
from torchport.targets.target import Artifact
from torchport.targets.ttnn.program import Program

FORMAT = 1


def pack(program: Program, weights: dict[str, torch.Tensor], properties: dict[str, object]) -> Artifact:
    """Return a program and its weights as an artefact."""
    text = json.dumps(program.to_json()).encode()
    blob = safetensors.torch.save(weights)
    payload = numpy.frombuffer(bytearray(text + blob), dtype=numpy.uint8)
    return Artifact(payload, {"format": FORMAT, "program_bytes": len(text), **properties})


def unpack(artifact: Artifact) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return the program and the weights of an artefact.

    Raises:
        TargetError: it is of another format.
    """
    if artifact.properties.get("format") != FORMAT:
        raise TargetError(
            f"the island has format {artifact.properties.get('format')!r}, not {FORMAT}",
            where="ttnn",
            remedy="compile the model again with this version of torchport",
        )
    size = artifact.properties["program_bytes"]
    assert isinstance(size, int)
    program = Program.from_json(json.loads(artifact.payload[:size].tobytes()))
    return program, safetensors.torch.load(artifact.payload[size:].tobytes())
