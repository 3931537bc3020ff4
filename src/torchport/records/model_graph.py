"""The graph that a target received: its ops, their data flow, their origin, and where each one runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torchport.errors import RecordError
from torchport.records.op_table import TensorType
from torchport.records.record import Record
from torchport.records.verdict import Verdict

MOST_GRAPH_OPS = 100_000
"""The most ops that a stored graph may have."""


@dataclass(frozen=True, slots=True)
class OpKind(Record):
    """What identical calls of an op have in common.

    Args:
        op: the op, such as `aten.convolution.default`.
        attributes: its non-tensor arguments, by their names in the schema.
        tensor_types: its tensors, by name; results are `output`, or `output[0]`, ….
        flops, bytes: the cost of one call.
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
    """One op of a graph. What many ops share is given as an index into one of the graph's lists.

    Args:
        name: its name in the graph.
        kind: the index of its kind in `kinds`.
        module: the index of its module in `modules`.
        sources: the indices of the ops whose results it takes; all of them precede it.
        line: the index of its source line in `lines`; -1 if it is unknown.
        island: the index of its island in `islands`; -1 if it stays on the host.
        verdict: the index of its verdict in `verdicts`; -1 if the target takes it.
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
    """The graph of a model as a target received it.

    Args:
        model: the model's name.
        target: the target's name.
        modules: the modules that call ops, and those that contain them.
        lines: the user's source lines, `file.py:12 in forward`.
        islands: the names of the subgraphs that the target takes.
        verdicts: why ops stay on the host.
        kinds: the distinct kinds of calls.
        ops: the ops in topological order.
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
        """Reject a graph that is too large or has an index out of range.

        Raises:
            RecordError: an op's index of a kind, module, line, island, verdict or preceding op is out of
                range, or there are more than `MOST_GRAPH_OPS` ops.
        """
        if len(self.ops) > MOST_GRAPH_OPS:
            raise RecordError(f"has more than {MOST_GRAPH_OPS:,} ops", where="ModelGraph.ops")
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
