"""Builds an island for onnxruntime: a graph of ATen ops → ONNX, with torch's own exporter."""

from __future__ import annotations

import numpy

from torchport.targets.onnxruntime.export import export
from torchport.targets.onnxruntime.format import FORMAT
from torchport.targets.onnxruntime.onnx_check import checked_model
from torchport.targets.onnxruntime.rules import RULES
from torchport.targets.openvino.bounded_divisors import bound_divisors
from torchport.targets.openvino.watches import add_sums, find_watches
from torchport.targets.summed_scales import dequantize_summed
from torchport.targets.target import Artifact, Island
from torchport.targets.value_ranges import input_ranges


def build(island: Island) -> Artifact:
    """Convert an island to ONNX.

    Raises:
        TargetError: the exporter cannot export the island, or it exceeds the size limit of ONNX files.
    """
    watches, finite_inputs = find_watches(island.graph_module, RULES)
    with_sums, sums = add_sums(island.graph_module, watches)
    bound_divisors(with_sums)
    dequantize_summed(with_sums)
    model = checked_model(export(with_sums, island.name), len(island.inputs), len(island.outputs) + len(sums))
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
