"""How long an op takes on an engine, measured by the engine itself."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpTime(Record):
    """One kernel that an engine ran.

    Args:
        node: the name of the graph's node that it computes. Several kernels may compute one node; a fused
            kernel is listed under one of its nodes. Empty if the engine does not say.
        seconds: how long it took.
        kernel: the engine's name for the kernel.
        precision: the precision that it computed in, if the engine says.
        is_reference: whether it is an unoptimized reference kernel, used where the engine has no fast one.
    """

    node: str
    seconds: float
    kernel: str = ""
    precision: str = ""
    is_reference: bool = False
