"""Builds an island whose program tests tamper with; the recorded lengths are corrected afterwards."""

from __future__ import annotations

import json

import numpy
import torch
from torch import nn

import torchport
from torchport import targets
from torchport.targets import Artifact


class Classifier(nn.Module):
    """A convolution, an activation and a linear layer: weights with and without preparation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.head = nn.Linear(8 * 6 * 6, 4)

    def forward(self, image):
        return self.head(self.stem(image).flatten(1)).softmax(-1) + torch.full((4,), 0.5)


def built(target: str = "ttnn"):
    """Return a built island's artefact and record, its example input, and eager torch's result for it."""
    model, x = Classifier().eval(), torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    compiled = torchport.compile(model, (x,), target=target, options={"cache": False})
    [record] = compiled.record.islands
    blob = getattr(compiled._first.program.graph_module, record.name)
    return Artifact(blob.numpy().copy(), dict(record.properties)), record, x, model(x).detach()


def program_json(artifact: Artifact) -> dict:
    """Return an artefact's program as JSON."""
    return json.loads(artifact.payload[: artifact.properties["program_bytes"]].tobytes())


def with_program(artifact: Artifact, program: object) -> Artifact:
    """Return the artefact with its program replaced."""
    text = program if isinstance(program, bytes) else json.dumps(program).encode()
    rest = artifact.payload[artifact.properties["program_bytes"] :].tobytes()
    payload = numpy.frombuffer(bytearray(text + rest), dtype=numpy.uint8)
    return Artifact(payload, {**artifact.properties, "program_bytes": len(text)})


def load_and_run(artifact: Artifact, record, x: torch.Tensor) -> torch.Tensor:
    """Load an artefact as a compiled model would, and run it once."""
    target = targets.find(record.target)
    runner = target.load(artifact, record.inputs, record.outputs, target.make_options(record.options))
    return runner([x])[0]
