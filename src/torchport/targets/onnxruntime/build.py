"""Builds an island for onnxruntime: a graph of ATen ops → ONNX, by torch's own exporter."""

from __future__ import annotations

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy
import torch
from torch import fx

from torchport.errors import TargetError, one_line
from torchport.targets.onnxruntime.format import FORMAT
from torchport.targets.onnxruntime.library import library
from torchport.targets.onnxruntime.onnx_check import checked_model
from torchport.targets.onnxruntime.rules import RULES
from torchport.targets.openvino.watches import add_sums, find_watches
from torchport.targets.target import Artifact, Island
from torchport.targets.value_ranges import input_ranges
from torchport.torch_private import ONNXRegistry, export_onnx

_OPSET = 20  # the newest that torch 2.11's exporter writes without converting


def build(island: Island) -> Artifact:
    """Convert an island to ONNX.

    Raises:
        TargetError: the exporter refuses the island, or it is larger than ONNX files can be.
    """
    watches, finite_inputs = find_watches(island.graph_module, RULES)
    with_sums, sums = add_sums(island.graph_module, watches)
    model = checked_model(
        _export(with_sums, island.name), len(island.inputs), len(island.outputs) + len(sums)
    )
    ranges = input_ranges(island.graph_module)
    return Artifact(
        numpy.frombuffer(bytearray(model), dtype=numpy.uint8),
        {
            "format": FORMAT,
            "input_ranges": {str(index): list(bounds) for index, bounds in ranges.items()},
            "finite_inputs": finite_inputs,
            "sums": sums,
        },
    )


def _export(graph_module: fx.GraphModule, name: str) -> bytes:
    library("onnxscript")
    values = [node.meta["val"] for node in graph_module.graph.nodes if node.op == "placeholder"]
    # Values are not looked at: the graph is straight.
    arguments = tuple(torch.zeros(value.shape, dtype=value.dtype) for value in values)
    try:
        with _quiet(), torch.no_grad():
            program = _exporter()(
                graph_module,
                arguments,
                opset_version=_OPSET,
                input_names=[f"input_{index}" for index in range(len(arguments))],
                verbose=False,
            )
            assert program is not None
            return bytes(program.model_proto.SerializeToString())
    except Exception as error:  # the exporter raises many kinds; each is a refusal
        while error.__cause__ is not None:  # it wraps the error that says what is wrong
            error = error.__cause__  # type: ignore[assignment]
        raise TargetError(
            f"torch's ONNX exporter refuses the island: {one_line(error)}", where=f"onnxruntime, {name}"
        ) from error


@functools.cache
def _exporter() -> Callable[..., torch.onnx.ONNXProgram | None]:
    """Return torch's exporter with its lowerings, which `torch.onnx.export` reads again for each island.

    That takes seconds. A torch whose inner function does not choose the opset is called from outside.
    """
    if "opset_version" not in inspect.signature(export_onnx).parameters:
        return functools.partial(torch.onnx.export, dynamo=True)
    return functools.partial(export_onnx, registry=ONNXRegistry.from_torchlib(opset_version=_OPSET))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter warns of and logs: it speaks of its own inner workings."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
