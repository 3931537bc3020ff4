"""The graph that a target was handed, op by op: what feeds what, from where, and where each runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torchport.errors import RecordError
from torchport.records.op_table import TensorType
from torchport.records.record import Record
from torchport.records.verdict import Verdict

MOST_GRAPH_OPS = 100_000
"""How many ops a stored graph may have."""


@dataclass(frozen=True, slots=True)
class OpKind(Record):
    """What ops that are called alike have in common.

    Args:
        op: the op, such as `aten.convolution.default`.
        attributes: its arguments that are no tensors, by the names of its schema.
        tensor_types: its tensors, by name; what it returns is `output`, or `output[0]`, ….
        flops, bytes: what one call costs.
    """

    op: str
    attributes: dict[str, object]
    tensor_types: dict[str, TensorType]
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GraphModule(Record):
    """A module that calls ops: its path, empty for the model itself, and its class."""

    path: str
    class_name: str


@dataclass(frozen=True, slots=True)
class GraphOp(Record):
    """One op of a graph. What many ops share is named by its place in a list of the graph's.

    Args:
        name: its name in the graph.
        kind: its place in `kinds`.
        module: its place in `modules`.
        sources: the ops, by their places, whose results it takes; each comes before it.
        line: its place in `lines`; -1 if no line is known.
        island: its place in `islands`; -1 if it stays on the host.
        verdict: its place in `verdicts`; -1 if the target takes it.
    """

    name: str
    kind: int
    module: int
    sources: tuple[int, ...]
    line: int = -1
    island: int = -1
    verdict: int = -1


@dataclass(frozen=True, slots=True)
class ModelGraph(Record):
    """The graph of a model as a target was handed it.

    Args:
        model, target: what was brought up where.
        modules: the modules that call ops, and those around them.
        lines: the user's source lines, `file.py:12 in forward`.
        islands: the names of the pieces that the target takes.
        verdicts: why ops stay.
        kinds: what the ops are.
        ops: the ops, each after those whose results it takes.
    """

    schema: ClassVar[str] = "torchport.graph/1"

    model: str
    target: str
    modules: tuple[GraphModule, ...]
    lines: tuple[str, ...]
    islands: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    kinds: tuple[OpKind, ...]
    ops: tuple[GraphOp, ...]

    def __post_init__(self) -> None:
        """Refuse a graph whose ops name something that is not there.

        Raises:
            RecordError: an op names a kind, a module, a line, an island, a verdict or an op before it that is
                not there, or there are more than `MOST_GRAPH_OPS` ops.
        """
        if len(self.ops) > MOST_GRAPH_OPS:
            raise RecordError(f"holds more than {MOST_GRAPH_OPS:,} ops", where="ModelGraph.ops")
        for place, op in enumerate(self.ops):
            _check(place, (op.kind,), 0, len(self.kinds), "kind")
            _check(place, (op.module,), 0, len(self.modules), "module")
            _check(place, (op.line,), -1, len(self.lines), "line")
            _check(place, (op.island,), -1, len(self.islands), "island")
            _check(place, (op.verdict,), -1, len(self.verdicts), "verdict")
            _check(place, op.sources, 0, place, "sources")


def _check(place: int, values: Iterable[int], least: int, end: int, field: str) -> None:
    for value in values:
        if not least <= value < end:
            raise RecordError(f"there is no entry {value}", where=f"ModelGraph.ops[{place}].{field}")
