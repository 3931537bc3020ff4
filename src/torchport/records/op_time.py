"""How long an op takes on an engine, by the engine's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpTime(Record):
    """One kernel that an engine ran.

    Args:
        node: the name of the graph's node that it stands for; several kernels may stand for one, and one
            kernel for several that were fused, by the name of one of them; empty if the engine does not say.
        seconds: how long it took.
        kernel: the engine's name for what ran.
        precision: what it computed in, if the engine says.
        is_reference: whether it is a plain loop that the engine has for want of a fast kernel.
    """

    node: str
    seconds: float
    kernel: str = ""
    precision: str = ""
    is_reference: bool = False
