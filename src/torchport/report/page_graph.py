"""Converts graphs to the page's format: columns of indices, and the lists that they refer to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchport.records import ROOT, Analysis, ModelGraph, Profile, TensorType

_LONGEST = 300  # the most characters of an attribute's value


def graph_of_target(graph: ModelGraph, profile: Profile | None = None) -> dict[str, Any]:
    """Return the graph that a target received, with the time of each op if it was measured."""
    return {
        "modules": [[module.path, module.class_name] for module in graph.modules],
        "lines": graph.lines,
        "islands": graph.islands,
        "verdicts": [[verdict.reason, verdict.detail, verdict.remedy] for verdict in graph.verdicts],
        "kinds": [
            _kind(kind.op, kind.attributes, kind.tensor_types, kind.flops, kind.bytes) for kind in graph.kinds
        ],
        "names": [op.name for op in graph.ops],
        "kind": [op.kind for op in graph.ops],
        "module": [op.module for op in graph.ops],
        "line": [op.line for op in graph.ops],
        "island": [op.island for op in graph.ops],
        "verdict": [op.verdict for op in graph.ops],
        "sources": [op.sources for op in graph.ops],
        "measures": {} if profile is None else {"Milliseconds": _milliseconds(graph, profile)},
    }


def _milliseconds(graph: ModelGraph, profile: Profile) -> list[float]:
    """Return the time of each op; the time of fused ops counts for the op that the profile names."""
    taken: dict[str, float] = {}
    for op in profile.ops:
        taken[op.node] = taken.get(op.node, 0.0) + 1e3 * op.seconds
    found = [taken.get(op.name, 0.0) for op in graph.ops]
    return [number if math.isfinite(number) else 0.0 for number in found]  # the file is untrusted


def graph_as_written(analysis: Analysis) -> dict[str, Any]:
    """Return the ops as the model's own code calls them."""
    cost = analysis.cost
    modules = {module.path: place for place, module in enumerate(cost.modules)}
    entries = {op.id: place for place, op in enumerate(analysis.ops.ops)}
    listed = [["" if module.path == ROOT else module.path, module.class_name] for module in cost.modules]
    kinds = [
        _kind(op.overload or op.op_name, op.attributes, op.tensor_types, op.flops + op.vector_flops, op.bytes)
        for op in analysis.ops.ops
    ]
    ops = cost.ops
    for op in ops:  # a file may refer to entries that are missing from the other files
        if op.module_path not in modules:
            modules[op.module_path] = len(listed)
            listed.append(["" if op.module_path == ROOT else op.module_path, ""])
        if op.op_id not in entries:
            entries[op.op_id] = len(kinds)
            kinds.append(_kind(op.op_id, {}, {}, op.flops, op.bytes_read + op.bytes_written))
    nothing = [-1] * len(ops)
    return {
        "modules": listed,
        "lines": [],
        "islands": [],
        "verdicts": [],
        "kinds": kinds,
        "names": [op.name for op in ops],
        "kind": [entries[op.op_id] for op in ops],
        "module": [modules[op.module_path] for op in ops],
        "line": nothing,
        "island": nothing,
        "verdict": nothing,
        "sources": [[source for source in op.sources if 0 <= source < place] for place, op in enumerate(ops)],
        "measures": {"memory": [op.allocated_bytes for op in ops]},
    }


def _kind(
    op: str, attributes: Mapping[str, object], types: Mapping[str, TensorType], flops: int, moved: int
) -> list[Any]:
    inputs = [[name, tensor_text(kind)] for name, kind in types.items() if not _is_output(name)]
    outputs = [tensor_text(kind) for name, kind in types.items() if _is_output(name)]
    return [op, attribute_texts(attributes), inputs, outputs, flops, moved]


def tensor_text(kind: TensorType) -> str:
    """Return a tensor as `float32[1x3x224x224]`."""
    return f"{kind.dtype}[{kind.shape}]"


def attribute_texts(attributes: Mapping[str, object]) -> Sequence[Sequence[str]]:
    """Return arguments as texts, with long values truncated."""
    texts = [(name, json.dumps(value, ensure_ascii=False, default=str)) for name, value in attributes.items()]
    return [[name, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"] for name, text in texts]


def _is_output(name: str) -> bool:
    return name == "output" or name.startswith("output[")
