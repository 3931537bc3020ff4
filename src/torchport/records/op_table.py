"""The unique ops of a model: name, attributes and tensors, and which modules call each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class TensorType(Record):
    """A tensor's shape, such as `1x64x224x224`, and dtype."""

    shape: str
    dtype: str


@dataclass(frozen=True, slots=True)
class OpOccurrence(Record):
    """One call of an op.

    Args:
        source_module_id: the entry of `unique_modules.json` whose module calls it.
        node_name: a name for the call, unique within the module.
        module_path: the path of the module.
    """

    source_module_id: str
    node_name: str
    module_path: str = ""


@dataclass(frozen=True, slots=True)
class UniqueOp(Record):
    """One op together with the attributes and tensors of its call.

    Args:
        id: such as `op_000`.
        op_name: how to call it, such as `torch.conv2d`.
        source_module_id, source_module_class: the module that calls it first.
        attributes: its non-tensor arguments, including defaults, by their names in the schema.
        tensor_types: its tensors, by their names in the schema; results are `output`, or `output[0]`, ….
        occurrences: every call.
        overload: torch's own name, such as `aten.conv2d.default`.
        phase: whether it runs in the forward or the backward pass.
        flops, vector_flops, bytes: the cost of one call.
    """

    id: str
    op_name: str
    source_module_id: str
    source_module_class: str
    attributes: dict[str, object]
    tensor_types: dict[str, TensorType]
    occurrences: tuple[OpOccurrence, ...]
    overload: str = ""
    phase: Literal["forward", "backward"] = "forward"
    flops: int = 0
    vector_flops: int = 0
    bytes: int = 0

    def tensors(self, *, returned: bool) -> dict[str, TensorType]:
        """Return the input tensors, or with `returned` the output tensors, by name."""
        named = self.tensor_types.items()
        return {
            name: kind for name, kind in named if (name == "output" or name.startswith("output[")) == returned
        }


@dataclass(frozen=True, slots=True)
class OpMetadata(Record):
    """Where a table of ops comes from.

    Args:
        source_modules_json: the file whose entries `source_module_id` refers to.
        total_ops: the number of calls.
        unique_ops: the number of entries.
        timestamp: when they were extracted.
        values, note: as in `ModuleMetadata`.
    """

    source_modules_json: str
    total_ops: int
    unique_ops: int
    timestamp: str
    values: str = "fake"
    note: str = ""


@dataclass(frozen=True, slots=True)
class OpTable(Record):
    """The unique ops of a model."""

    schema: ClassVar[str] = "torchport.pytorch_ops/1"

    metadata: OpMetadata
    ops: tuple[UniqueOp, ...] = field(default_factory=tuple)
