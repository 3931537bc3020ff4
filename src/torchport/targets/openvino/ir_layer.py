"""A layer of an intermediate representation, as the checks of files read it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchport.errors import TargetError


@dataclass(slots=True)
class Layer:
    """The parts of a layer that are checked.

    Args:
        type: its type.
        data: the attributes of its data element, if it has one.
        takes, gives: the ids of its input and output ports, in OpenVINO's order: that of the file.
    """

    type: str
    data: dict[str, str] | None = None
    takes: dict[str, None] = field(default_factory=dict)
    gives: dict[str, None] = field(default_factory=dict)


def refusal(why: str) -> TargetError:
    """Return the error that refuses an island's model."""
    return TargetError(
        f"the island's model is refused: {why}", where="openvino", remedy="compile the model again"
    )
