"""Turns analyses of models into the configurations that their ops are called with, most expensive first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torchport.records import Analysis, OpConfiguration, OpConfigurations, UniqueOp, csv_text

_MOST_EXAMPLES = 3


@dataclass(slots=True)
class _Row:
    op: UniqueOp
    count: int = 0
    flops: int = 0
    bytes: int = 0
    models: dict[str, None] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


def op_configurations(analyses: Iterable[Analysis]) -> OpConfigurations:
    """Collect the configurations of several models' ops: op, input shapes and dtypes, attributes.

    Example:
        >>> table = op_configurations([analyze(model, args), analyze(torch.nn.Linear(4, 2), args)])
        >>> [row.op_name for row in table.configurations]
        ['torch.nn.functional.linear', 'torch.relu']
    """
    rows: dict[str, _Row] = {}
    models: list[str] = []
    for analysis in analyses:
        models.append(analysis.model)
        for op in analysis.ops.ops:
            _add(rows.setdefault(_key(op), _Row(op)), op, analysis.model)
    total = sum(row.flops for row in rows.values())
    ordered = sorted(rows.values(), key=lambda row: (-row.flops, -row.bytes, row.op.op_name))
    return OpConfigurations(
        models=tuple(models),
        total_ops=sum(row.count for row in rows.values()),
        total_flops=total,
        configurations=tuple(_record(row, total) for row in ordered),
    )


def configurations_csv(table: OpConfigurations) -> str:
    """Return the table as CSV, one row for each configuration."""
    rows: list[Sequence[object]] = [
        "op_name phase inputs attributes count flops flop_share bytes models examples".split()
    ]
    for row in table.configurations:
        inputs = "; ".join(f"{name}: {entry.dtype}[{entry.shape}]" for name, entry in row.inputs.items())
        attributes = json.dumps(row.attributes, ensure_ascii=False)
        counts = [row.count, row.flops, f"{row.flop_share:.6f}", row.bytes]
        places = ["; ".join(row.models), "; ".join(row.examples)]
        rows.append([row.op_name, row.phase, inputs, attributes, *counts, *places])
    return csv_text(rows)


def _add(row: _Row, op: UniqueOp, model: str) -> None:
    calls = len(op.occurrences)
    row.count += calls
    row.flops += calls * op.flops
    row.bytes += calls * op.bytes
    row.models[model] = None
    for occurrence in op.occurrences[: _MOST_EXAMPLES - len(row.examples)]:
        row.examples.append(f"{model}: {occurrence.module_path}")


def _key(op: UniqueOp) -> str:
    inputs = {name: entry.to_json() for name, entry in op.tensors(returned=False).items()}
    return json.dumps([op.overload, op.phase, inputs, op.attributes], sort_keys=True, default=str)


def _record(row: _Row, total: int) -> OpConfiguration:
    return OpConfiguration(
        op_name=row.op.op_name,
        phase=row.op.phase,
        inputs=row.op.tensors(returned=False),
        attributes=row.op.attributes,
        count=row.count,
        flops=row.flops,
        flop_share=row.flops / total if total else 0.0,
        bytes=row.bytes,
        models=tuple(row.models),
        examples=tuple(row.examples),
    )
