"""Builds an island: a graph of ATen ops → a program and its weights."""

from __future__ import annotations

from torchport.targets.target import Artifact, Island
from torchport.targets.ttnn.estimate import estimate
from torchport.targets.ttnn.format import pack
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.write import write_program
from torchport.targets.value_ranges import input_ranges


def build(island: Island, options: TtnnOptions) -> Artifact:
    """Return the island as an artefact.

    Raises:
        TargetError: an op cannot be lowered where it stands.
    """
    program, weights = write_program(island, options)
    ranges = input_ranges(island.graph_module)
    return pack(
        program,
        weights,
        {
            "input_ranges": {str(index): list(bounds) for index, bounds in ranges.items()},
            "estimated_seconds": estimate(program),
            "peak_bytes": program.peak_bytes,
        },
    )
