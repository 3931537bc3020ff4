"""Loads an island that `build` wrote, and calls its ops one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from torchport.errors import RecordError, TargetError
from torchport.records import TensorSpec, parse_object
from torchport.targets.artifact_properties import check_format, read_number
from torchport.targets.graph_call import graph_call
from torchport.targets.graph_json import decode_graph
from torchport.targets.safetensors_file import read_safetensors, restored, tensor_places
from torchport.targets.target import Artifact, Runner

FORMAT = 3  # incremented whenever the output format of `build` changes


def load(artifact: Artifact, outputs: Sequence[TensorSpec] = ()) -> Runner:
    """Return a function that runs the island.

    Args:
        artifact: the island.
        outputs: the specs of its results; none if they are not known in advance.

    Raises:
        TargetError: the artefact is of another format, or calls an op that is not permitted.
    """
    forward = graph_call(read_graph(artifact), "host")
    dims = [len(spec.shape) for spec in outputs]

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = list(forward(*arguments))
        if not all(isinstance(result, torch.Tensor) for result in results) or (
            dims and [result.dim() for result in results] != dims
        ):
            raise TargetError(
                "the island returned unexpected outputs", where="host", remedy="get the file again"
            )
        return results

    return run


def weight_places(artifact: Artifact) -> list[tuple[int, int]]:
    """Return the start and length of each weight in the payload."""
    size = read_number(artifact.properties, "program_bytes", artifact.payload.size, "host")
    return [(size + start, length) for start, length in tensor_places(artifact.payload[size:])]


def read_graph(artifact: Artifact) -> fx.GraphModule:
    """Return the island's graph, whose ops are all permitted, with its weights.

    Raises:
        TargetError: the artefact is of another format, or calls an op that is not permitted.
    """
    check_format(artifact.properties, FORMAT, "host")
    size = read_number(artifact.properties, "program_bytes", artifact.payload.size, "host")
    try:
        program = parse_object(artifact.payload[:size].tobytes(), "the island's program")
    except RecordError as error:
        raise TargetError(error.what, where=error.where, remedy=error.remedy) from error
    weights = restored(read_safetensors(artifact.payload[size:]), program.get("complexes"))
    return decode_graph(program, weights)
