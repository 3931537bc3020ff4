"""Converts a report to the page's data: tables, charts and graphs as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchport.records import Analysis, BenchRecord, Coverage, Tries
from torchport.report.actions import next_actions
from torchport.report.changes import changes_since
from torchport.report.columns import columns_for, complaint
from torchport.report.grouping import group_stayed
from torchport.report.page_graph import attribute_texts, graph_as_written, graph_of_target, tensor_text
from torchport.report.page_survey import survey_data
from torchport.report.reading import Report
from torchport.report.tries_table import TRIES_HEADER, TRIES_NUMERIC, tries_cells, tries_values

_MOST_PLACES = 50
_MOST_POINTS = 2000


def page_data(report: Report, title: str, baseline: Report | None) -> Iterator[Any]:
    """Yield the data that the page shows at once, then the graphs and analyses that it opens on demand.

    Args:
        report: the report that `read_report` returned.
        title: the page's heading.
        baseline: an earlier run to compare it with.
    """
    runs = [("", report)] + ([("baseline", baseline)] if baseline else [])
    later: list[Any] = []
    graphs = []
    for run, found in runs:
        for analysis in found.analyses:
            later.append(graph_as_written(analysis))
            graphs.append(_entry(len(later), run, analysis.model, "", "written", len(analysis.cost.ops)))
        profiles = {(profile.model, profile.target): profile for profile in found.profiles}
        for graph in found.graphs:
            later.append(graph_of_target(graph, profiles.get((graph.model, graph.target))))
            graphs.append(_entry(len(later), run, graph.model, graph.target, "aten", len(graph.ops)))
    analyses = []
    for analysis in report.analyses:
        later.append(_analysis(analysis))
        analyses.append({"block": len(later), "model": analysis.model})
    columns = columns_for(report.benches)
    at_once = {
        "title": title,
        "columns": [
            {"title": column.title, "explanation": column.explanation, "numeric": column.numeric}
            for column in columns
        ],
        "rows": [
            {
                "model": row.model,
                "target": row.target,
                "status": row.status,
                "speedup": row.speedup,
                "complaint": complaint(row),
                "cells": [[column.text(row), column.value(row)] for column in columns],
            }
            for row in report.benches
        ],
        "tries": [_tries(row.model, row.tries) for row in report.benches if row.tries is not None],
        "coverages": [_coverage(coverage) for coverage in report.coverages],
        "accuracies": [accuracy.to_json() for accuracy in report.accuracies],
        "quantizations": [quantization.to_json() for quantization in report.quantizations],
        "problems": [[problem.path, problem.detail] for problem in report.every_problem],
        "survey": survey_data(report.survey) if report.survey else None,
        "analyses": analyses,
        "graphs": graphs,
        "actions": [action.to_json() for action in next_actions(report)],
        "changes": [change.to_json() for change in changes_since(baseline, report)] if baseline else None,
        "grounds": list(dict.fromkeys(filter(None, map(_environment, report.benches)))),
    }
    yield _strict(at_once)
    yield from later


def _entry(block: int, run: str, model: str, target: str, view: str, ops: int) -> dict[str, Any]:
    return {"block": block, "run": run, "model": model, "target": target, "view": view, "ops": ops}


def _strict(value: Any) -> Any:
    """Return data that strict JSON can express: non-finite numbers become texts."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "model": coverage.model,
        "target": coverage.target,
        "ops": [coverage.ops_before - coverage.ops_remain, coverage.ops_before],
        "flops": [coverage.flops_covered, coverage.flops],
        "bytes": [coverage.bytes_covered, coverage.bytes],
        "islands": len(coverage.islands),
        "transfers": coverage.transfers,
        "groups": [
            {
                "op": group.op,
                "reason": group.reason,
                "detail": group.detail,
                "remedy": group.remedy,
                "count": group.count,
                "flops": group.flops,
                "bytes": group.bytes,
                "node": group.node,
                "places": group.places[:_MOST_PLACES],
                "more": max(0, len(group.places) - _MOST_PLACES),
            }
            for group in group_stayed(coverage.stayed)
        ],
    }


def _tries(model: str, tries: Tries) -> dict[str, Any]:
    return {
        "model": model,
        "chosen": tries.chosen,
        "objective": tries.objective,
        "seconds": tries.seconds,
        "columns": [
            {"title": title, "numeric": numeric}
            for title, numeric in zip(TRIES_HEADER, TRIES_NUMERIC, strict=True)
        ],
        "rows": [
            list(map(list, zip(tries_cells(row), tries_values(row), strict=True))) for row in tries.rows
        ],
    }


def _environment(row: BenchRecord) -> str:
    """Return the versions and the machine that a row was measured with."""
    facts = [f"{name} {version}" for name, version in row.versions.items()]
    return " · ".join(facts + [f"{name}: {value}" for name, value in row.machine.items()])


def _analysis(analysis: Analysis) -> dict[str, Any]:
    cost = analysis.cost
    peak = cost.peak
    return {
        "class": cost.model_class,
        "backward": cost.backward,
        "flops": cost.flops,
        "vector": cost.vector_flops,
        "bytes": cost.bytes_read + cost.bytes_written,
        "parameters": cost.parameters,
        "parameterBytes": cost.parameter_bytes,
        "totalBytes": cost.total_bytes,
        "uncounted": cost.uncounted,
        "note": cost.note,
        "peak": peak.to_json() if peak else None,
        "timeline": _thin_out(cost.timeline),
        "modules": [
            {
                "path": module.path,
                "class": module.class_name,
                "calls": module.calls,
                "shapes": ", ".join(module.output_shapes),
                "parameters": module.parameters,
                "flops": module.flops + module.vector_flops,
                "bytes": module.bytes_read + module.bytes_written,
                "peak": module.peak_bytes,
            }
            for module in cost.modules
        ],
        "uniqueModules": [
            {
                "class": module.class_name,
                "inputs": ", ".join(module.input_shapes),
                "outputs": ", ".join(module.output_shapes),
                "parameters": attribute_texts(module.parameters),
                "count": len(module.occurrences),
                "calls": module.calls,
                "path": module.module_path,
            }
            for module in analysis.modules.modules
        ],
        "uniqueOps": [
            {
                "op": op.op_name,
                "overload": op.overload,
                "phase": op.phase,
                "tensors": [[name, tensor_text(kind)] for name, kind in op.tensor_types.items()],
                "attributes": attribute_texts(op.attributes),
                "count": len(op.occurrences),
                "flops": (op.flops + op.vector_flops) * len(op.occurrences),
                "bytes": op.bytes * len(op.occurrences),
                "path": op.occurrences[0].module_path if op.occurrences else "",
                "name": op.occurrences[0].node_name if op.occurrences else "",
            }
            for op in analysis.ops.ops
        ],
    }


def _thin_out(timeline: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return as many steps as a chart can show: the peak of each stretch."""
    length = -(-len(timeline) // _MOST_POINTS) or 1
    stretches = [
        range(start, min(start + length, len(timeline))) for start in range(0, len(timeline), length)
    ]
    highest = [max(stretch, key=timeline.__getitem__) for stretch in stretches]
    return [(step, timeline[step]) for step in highest]
