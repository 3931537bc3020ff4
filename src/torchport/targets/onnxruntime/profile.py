"""Measures how long each op of an island takes, with onnxruntime's own profiler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchport.errors import TargetError, one_line
from torchport.records import OpTime, temporary_folder
from torchport.targets.onnxruntime.build import build
from torchport.targets.onnxruntime.library import library
from torchport.targets.onnxruntime.load import make_session, session_options
from torchport.targets.onnxruntime.options import OnnxRuntimeOptions
from torchport.targets.target import Island

_RUNS = 4  # the first is a warm-up
_ENDING = "_kernel_time"
_DTYPES = {"float": "float32", "float16": "float16", "double": "float64"}
_EIGHT_BITS = {"uint8": "u8", "int8": "i8"}


def op_times(island: Island, options: OnnxRuntimeOptions, arguments: Sequence[torch.Tensor]) -> list[OpTime]:
    """Build the island, run it under onnxruntime's profiler, and return each kernel's shortest time.

    Raises:
        TargetError: onnxruntime rejects the island, or fails to run it.
    """
    model = build(island).payload.tobytes()
    nodes = _nodes_of(model, {node.name for node in island.graph_module.graph.nodes})
    with temporary_folder("profile") as folder:
        settings = session_options(options)
        settings.enable_profiling = True
        settings.profile_file_prefix = str(folder / "profile")
        try:
            events = _run(make_session(model, settings, options), arguments)
        except Exception as error:  # onnxruntime raises many types
            raise TargetError(f"onnxruntime fails: {one_line(error)}", where="onnxruntime") from error
    return _times(events, nodes)


def _run(session: Any, arguments: Sequence[torch.Tensor]) -> list[Mapping[str, Any]]:
    names = [port.name for port in session.get_inputs()]
    feed = {
        name: argument.detach().contiguous().numpy() for name, argument in zip(names, arguments, strict=True)
    }
    for _ in range(_RUNS):
        session.run(None, feed)
    found: list[Mapping[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return found


def _times(events: Sequence[Mapping[str, Any]], nodes: Mapping[str, str]) -> list[OpTime]:
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_ENDING):
            runs.setdefault(f"{event['args'].get('node_index')} {name}", []).append(event)
    found = []
    for events_of_kernel in runs.values():
        best = min(events_of_kernel[1:] or events_of_kernel, key=lambda event: event["dur"])
        facts = best["args"]
        provider = str(facts.get("provider", "")).removesuffix("ExecutionProvider")
        found.append(
            OpTime(
                _node_of(str(best["name"]).removesuffix(_ENDING), nodes),
                best["dur"] * 1e-6,
                f"{facts.get('op_name', '')} {provider}".strip(),
                _precision(facts),
            )
        )
    return found


def _precision(facts: Mapping[str, Any]) -> str:
    """Return a kernel's precision: eight bits if its input has them, else the dtype of its output."""
    taken, given = (
        next((kind for shown in facts.get(f"{way}_type_shape", ()) for kind in shown), "")
        for way in ("input", "output")
    )
    if taken in _EIGHT_BITS and facts.get("op_name") != "DequantizeLinear":
        return _EIGHT_BITS[taken]
    return _DTYPES.get(given, given)


def _nodes_of(model: bytes, known: set[str]) -> dict[str, str]:
    """Map each node and value of the model to the node of the island that it computes.

    The exporter gives a value the name of the island's node that it corresponds to. Intermediate steps are
    attributed to the node that they help compute.
    """
    graph = library("onnx").load_from_string(model).graph
    found: dict[str, str] = {}
    wanted: dict[str, str] = {}  # the island's node that a value is needed for
    for node in reversed(graph.node):
        own = [name for name in node.output if name in known]
        stands_for = own[0] if own else next((wanted[name] for name in node.output if name in wanted), "")
        found[node.name] = stands_for
        for name in node.output:
            found[name] = stands_for
        for name in node.input:
            if name not in known:
                wanted.setdefault(name, stands_for)
    return found


def _node_of(kernel: str, nodes: Mapping[str, str]) -> str:
    """Return the node of a kernel; a fused kernel's name contains the name of one of its parts."""
    if kernel in nodes:
        return nodes[kernel]
    parts = [name for name in nodes if name and name in kernel]
    return nodes[max(parts, key=len)] if parts else ""
