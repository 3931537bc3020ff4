"""The configurations that ops are called with, across models: what a device's op library must run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.op_table import TensorType
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpConfiguration(Record):
    """An op with the tensors and attributes that it is called with.

    Args:
        op_name: how to call it, such as `torch.conv2d`.
        phase: in the forward or the backward pass.
        inputs: its tensors, by the names of its schema.
        attributes: its other arguments, by name.
        count: how many calls there are.
        flops: of all those calls.
        flop_share: the part of all models' FLOPs that they are.
        bytes: read and written, by all those calls.
        models: the models that call it so.
        examples: a few places, each as `model: module path`.
    """

    op_name: str
    phase: str
    inputs: dict[str, TensorType]
    attributes: dict[str, object]
    count: int
    flops: int
    flop_share: float
    bytes: int
    models: tuple[str, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpConfigurations(Record):
    """Every configuration of every op of some models, the most expensive first.

    Args:
        models: the models.
        total_ops: how many calls there are in all.
        total_flops: the FLOPs of all of them.
        configurations: one row each.
    """

    schema: ClassVar[str] = "torchport.op_configurations/1"

    models: tuple[str, ...]
    total_ops: int
    total_flops: int
    configurations: tuple[OpConfiguration, ...]
