"""Exports a graph to ONNX with torch's exporter, without repeating captures and decompositions.

The exporter captures its input and then decomposes it, which is another capture. An island's graph is already
captured and decomposed: if the exporter has a lowering for each of its ops, it gets the graph as it is.
"""

from __future__ import annotations

import functools
import inspect
import logging
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from torchport.capture import quiet_torch
from torchport.errors import TargetError, one_line
from torchport.targets.onnxruntime.library import library
from torchport.targets.onnxruntime.quantized import LOWERINGS, write_quantized, write_zero_points
from torchport.torch_private import FakeTensorMode, ONNXRegistry, export_onnx, tree_map_only

_log = logging.getLogger(__name__)

_OPSET = 20  # the newest that torch 2.11's exporter writes without conversion


def export(graph_module: fx.GraphModule, name: str) -> bytes:
    """Return a graph as ONNX, with its weights.

    Args:
        graph_module: the graph, with `val` metadata on its nodes.
        name: the island's name, for error messages.

    Raises:
        TargetError: the exporter fails on the graph.
    """
    library("onnxscript")
    try:
        with _quiet(), torch.no_grad():
            graph, weights = _lift_weights(graph_module)
            graph = write_quantized(graph, weights)
            return _export_directly(graph, weights) or _export_with_capture(graph, weights)
    except Exception as error:  # the exporter raises many types; each means that it cannot export the graph
        while error.__cause__ is not None:  # it wraps the error that says what is wrong
            error = error.__cause__  # type: ignore[assignment]  # the cause of an Exception is one here
        raise TargetError(
            f"torch's ONNX exporter cannot export the island: {one_line(error)}",
            where=f"onnxruntime, {name}",
        ) from error


def _export_directly(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> bytes:
    """Return the graph as ONNX; empty if it must be decomposed further first."""
    registry = _registry()
    if registry is None:
        return b""
    calls = [node.target for node in graph.nodes if node.op == "call_function"]
    if not all(call is operator.getitem or registry.is_registered(call) for call in calls):
        return b""
    try:
        return _run_exporter(_as_program(graph, weights), ())
    except Exception as error:  # noqa: BLE001  # on failure the caller retries with the exporter's own capture
        _log.info("exporting again with the exporter's own capture: %s", one_line(error))
        return b""


def _export_with_capture(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> bytes:
    graph = _with_weights_inside(graph, weights)
    values = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    # The values do not matter: the graph has no control flow.
    arguments = tuple(torch.zeros(value.shape, dtype=value.dtype) for value in values)
    return _run_exporter(fx.GraphModule(weights, graph), arguments)


def _with_weights_inside(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> fx.Graph:
    """Return a graph that reads its weights as attributes."""
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.name in weights:
            copies[node] = made.get_attr(node.name)
        else:
            copies[node] = made.node_copy(node, copies.__getitem__)
    return made


def _run_exporter(model: fx.GraphModule | ExportedProgram, arguments: tuple[torch.Tensor, ...]) -> bytes:
    program = _exporter()(
        model,
        arguments,
        opset_version=_OPSET,
        input_names=[f"input_{index}" for index in range(_inputs(model))],
        verbose=False,
    )
    assert program is not None
    made = program.model_proto
    write_zero_points(made)
    return bytes(made.SerializeToString())


def _inputs(model: fx.GraphModule | ExportedProgram) -> int:
    """Return how many tensors a program takes, not counting its weights."""
    if isinstance(model, ExportedProgram):
        return len(model.graph_signature.user_inputs)
    return sum(node.op == "placeholder" for node in model.graph.nodes)


class _Decomposed(ExportedProgram):
    """A program whose ops all have a lowering in the exporter."""

    def run_decompositions(self, *args: object, **kwargs: object) -> ExportedProgram:
        """Return the program unchanged."""
        return self


def _as_program(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> ExportedProgram:
    """Return an exported program for a graph that takes its weights as inputs."""
    returned = cast("tuple[fx.Node, ...]", graph.output_node().args[0])
    inputs = [
        InputSpec(InputKind.BUFFER, TensorArgument(node.name), node.name, persistent=True)
        if node.name in weights
        else InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None)
        for node in graph.nodes
        if node.op == "placeholder"
    ]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in returned]
    signature = ExportGraphSignature(inputs, outputs)
    return _Decomposed(torch.nn.Module(), graph, signature, dict(weights), {}, [ModuleCallEntry("", None)])


def _lift_weights(graph_module: fx.GraphModule) -> tuple[fx.Graph, dict[str, torch.Tensor]]:
    """Return a graph that takes its weights as inputs, after its own, and the weights by input name."""
    graph = fx.Graph()
    nodes = list(graph_module.graph.nodes)
    copies = {node: graph.placeholder(node.name) for node in nodes if node.op == "placeholder"}
    places: dict[str, fx.Node] = {}
    weights: dict[str, torch.Tensor] = {}
    for node in nodes:
        if node.op == "get_attr":
            name = str(node.target)
            if name not in places:
                places[name] = graph.placeholder(f"weight_{len(weights)}")
                weights[places[name].name] = getattr(graph_module, name).detach()
            copies[node] = places[name]
    for node in nodes:
        if node.op == "call_function":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    with FakeTensorMode():  # a single mode: the fake tensors on an island's nodes may come from several
        for node, copied in copies.items():
            value = weights.get(copied.name, node.meta.get("val"))
            # Where the user's code called it does not belong in a file.
            copied.meta = {"val": tree_map_only(torch.Tensor, _fake, value), "nn_module_stack": {}}
    graph.output(fx.map_arg(graph_module.graph.output_node().args[0], copies.__getitem__))
    return graph, weights


def _fake(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


@functools.cache
def _registry() -> Any:
    """Return the exporter's lowerings, cached; `torch.onnx.export` spends seconds loading them each time.

    None for a torch whose inner export function has no opset parameter.
    """
    if "opset_version" not in inspect.signature(export_onnx).parameters:
        return None
    registry = ONNXRegistry.from_torchlib(opset_version=_OPSET)
    for op, lowering in LOWERINGS.items():
        registry.register_op(op, lowering)
    return registry


def _exporter() -> Callable[..., torch.onnx.ONNXProgram | None]:
    registry = _registry()
    if registry is None:
        return functools.partial(torch.onnx.export, dynamo=True)
    return functools.partial(export_onnx, registry=registry)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings and logs, which concern only its internals."""
    with quiet_torch():  # the exporter traces, which only one thread at a time may do
        loggers = [logging.getLogger(name) for name in ("onnxscript", "torch.onnx")]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
