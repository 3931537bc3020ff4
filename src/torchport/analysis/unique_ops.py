"""Turns the stream of a model's ops into its unique ops, with every call of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from torchport.analysis.cost import CallCost
from torchport.analysis.module_parameters import is_plain, plain_value
from torchport.analysis.op_names import python_name
from torchport.capture import OpCall, StreamedOp
from torchport.records import (
    ROOT,
    OpMetadata,
    OpOccurrence,
    OpTable,
    TensorSpec,
    TensorType,
    UniqueOp,
    shape_text,
)


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """An op of the stream, with the id of its module's entry and its cost."""

    op: StreamedOp
    module_id: str
    cost: CallCost


@dataclass(slots=True)
class _Entry:
    first: PlacedOp
    occurrences: list[OpOccurrence] = field(default_factory=list)


class UniqueOps:
    """The unique ops of one run.

    Args:
        ops: the ops in execution order.
        classes: the class names of the module entries, by id.
    """

    def __init__(self, ops: Iterable[PlacedOp], classes: Mapping[str, str]) -> None:
        self._classes = classes
        self._entries: dict[object, _Entry] = {}
        self._names: dict[tuple[str, str], int] = {}
        # For each op of the stream, the id of its entry and the name of the call.
        self.placed: list[tuple[str, str]] = []
        numbers: dict[object, str] = {}
        for placed in ops:
            key = (placed.op.phase, call_key(placed.op.call))
            if key not in self._entries:
                numbers[key] = f"op_{len(self._entries):03d}"
                self._entries[key] = _Entry(placed)
            name = self._name(placed.op)
            path = placed.op.path or ROOT
            self._entries[key].occurrences.append(OpOccurrence(placed.module_id, name, path))
            self.placed.append((numbers[key], name))

    def _name(self, op: StreamedOp) -> str:
        """Return a name for a call, unique within its module."""
        base = op.call.name.partition("::")[2]
        count = self._names.get((op.path, base), 0)
        self._names[op.path, base] = count + 1
        return f"{base}_{count}" if count else base

    def table(self, modules_json: str, values: str, note: str) -> OpTable:
        """Return the entries as a record."""
        ops = tuple(
            UniqueOp(
                id=f"op_{number:03d}",
                op_name=python_name(entry.first.op.call.op),
                source_module_id=entry.first.module_id,
                source_module_class=self._classes.get(entry.first.module_id, ""),
                attributes=attributes_of(entry.first.op.call),
                tensor_types=tensor_types_of(entry.first.op.call),
                occurrences=tuple(entry.occurrences),
                overload=str(entry.first.op.call.op),
                phase=entry.first.op.phase,
                flops=entry.first.cost.flops,
                vector_flops=entry.first.cost.vector_flops,
                bytes=entry.first.cost.read + entry.first.cost.written,
            )
            for number, entry in enumerate(self._entries.values())
        )
        total = sum(len(op.occurrences) for op in ops)
        timestamp = datetime.now().isoformat(timespec="seconds")
        return OpTable(OpMetadata(modules_json, total, len(ops), timestamp, values, note), ops)


def call_key(call: OpCall) -> object:
    """Return a key that is equal for identical calls; it distinguishes 1, 1.0 and True."""
    arguments = tuple((type(value), value) for value in call.arguments.values())
    return (call.op, arguments, call.results)


def attributes_of(call: OpCall) -> dict[str, object]:
    """Return a call's non-tensor arguments as JSON values.

    An optional tensor that is omitted is included as None.
    """
    return {
        name: _plain(value)
        for name, value in call.arguments.items()
        if not isinstance(value, TensorSpec) and not _has_tensors(value)
    }


def tensor_types_of(call: OpCall) -> dict[str, TensorType]:
    """Return a call's tensors by name: those among its arguments, and those that it returned."""
    types = {
        ("output (argument)" if name == "output" else name): _tensor_type(spec)
        for name, spec in call.tensors()
    }
    for number, spec in enumerate(call.results):
        if spec is not None:
            types["output" if len(call.results) == 1 else f"output[{number}]"] = _tensor_type(spec)
    return types


def _tensor_type(spec: TensorSpec) -> TensorType:
    return TensorType(shape_text(spec.shape), spec.dtype)


def _has_tensors(value: object) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, TensorSpec) for item in value)


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    simple = plain_value(value)
    return simple if is_plain(simple) else f"<{type(value).__name__}>"
