"""The configurations in which models call ops: what a device's op library must support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.op_table import TensorType
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpConfiguration(Record):
    """An op together with the tensors and attributes that it is called with.

    Args:
        op_name: how to call it, such as `torch.conv2d`.
        phase: the pass that calls it, `forward` or `backward`.
        inputs: its tensors, by their names in the schema.
        attributes: its other arguments, by name.
        count: the number of such calls.
        flops: the FLOPs of all those calls.
        flop_share: their share of the FLOPs of all models.
        bytes: the bytes that all those calls read and write.
        models: the models with such calls.
        examples: a few of the call sites, each as `model: module path`.
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
    """Every configuration of every op of several models, the most expensive first.

    Args:
        models: the models.
        total_ops: the number of calls in all models.
        total_flops: the FLOPs of all calls.
        configurations: one entry for each configuration.
    """

    schema: ClassVar[str] = "torchport.op_configurations/1"

    models: tuple[str, ...]
    total_ops: int
    total_flops: int
    configurations: tuple[OpConfiguration, ...]
