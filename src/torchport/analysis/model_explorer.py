"""Exports an analysis for Model Explorer: a graph of the ops in their modules, and the ops' costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torchport.records import JSON, ROOT, Analysis, OpCost, TensorType, UniqueOp, write_texts

# The costs that can color the graph; each name is part of its file's name.
_COSTS = ("flops", "vector_flops", "bytes_read", "bytes_written", "allocated_bytes")
_GRADIENT: JSON = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f06a4f"}]


def export_model_explorer(analysis: Analysis, path: str | Path) -> tuple[Path, ...]:
    """Write an analysis for Model Explorer: a graph, and next to it a file of node data for each cost.

    Args:
        analysis: the analysis.
        path: the graph's file, such as `resnet.json`; the FLOPs are then in `resnet.flops.json`, and so on.

    Returns:
        The paths of the files, the graph first.

    Raises:
        RecordError: a file cannot be written.

    Example:
        >>> export_model_explorer(analyze(model, args), "resnet.json")
    """
    texts = model_explorer_files(analysis, path)
    write_texts(texts)
    return tuple(texts)


def model_explorer_files(analysis: Analysis, path: str | Path) -> dict[Path, str]:
    """Return the path and text of each file that `export_model_explorer` writes."""
    graph = Path(path)
    texts = {graph: _text(graph_json(analysis))}
    for name, data in node_data_json(analysis).items():
        texts[graph.with_name(f"{graph.stem}.{name}{graph.suffix}")] = _text(data)
    return texts


def graph_json(analysis: Analysis) -> JSON:
    """Return the graph: a node for each op, in the namespace of its module."""
    entries = {op.id: op for op in analysis.ops.ops}
    nodes = [_node(number, op, entries[op.op_id]) for number, op in enumerate(analysis.cost.ops)]
    groups: JSON = {
        _namespace(module.path): {
            "class": module.class_name,
            "parameters": f"{module.parameters:,}",
            "flops": f"{module.flops:,}",
            "peak memory": f"{module.peak_bytes:,} B",
        }
        for module in analysis.cost.modules
    }
    graph: JSON = {"id": analysis.cost.model_class, "nodes": nodes, "groupNodeAttributes": groups}
    return {"label": analysis.model, "graphs": [graph]}


def node_data_json(analysis: Analysis) -> dict[str, JSON]:
    """Return the node data of each cost by name: a value for each node."""
    return {
        name: {
            analysis.cost.model_class: {
                "results": {
                    str(number): {"value": getattr(op, name)} for number, op in enumerate(analysis.cost.ops)
                },
                "gradient": _GRADIENT,
            }
        }
        for name in _COSTS
    }


def _node(number: int, op: OpCost, entry: UniqueOp) -> JSON:
    facts = {
        "op": entry.overload,
        "module": op.module_path,
        "phase": op.phase,
        **{name: json.dumps(value) for name, value in entry.attributes.items()},
        **{name: f"{getattr(op, name):,}" for name in _COSTS},
    }
    return {
        "id": str(number),
        "label": entry.op_name,
        "namespace": _namespace(op.module_path),
        "attrs": _key_values(facts),
        "incomingEdges": [
            {"sourceNodeId": str(source), "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}
            for place, source in enumerate(op.sources)
        ],
        "inputsMetadata": _metadata(entry.tensors(returned=False)),
        "outputsMetadata": _metadata(entry.tensors(returned=True)),
    }


def _metadata(tensors: Mapping[str, TensorType]) -> JSON:
    return [
        {"id": str(place), "attrs": _key_values({"name": name, "shape": kind.shape, "dtype": kind.dtype})}
        for place, (name, kind) in enumerate(tensors.items())
    ]


def _key_values(facts: Mapping[str, str]) -> JSON:
    return [{"key": key, "value": value} for key, value in facts.items()]


def _namespace(path: str) -> str:
    return "" if path == ROOT else path.replace(".", "/")


def _text(data: JSON) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"
