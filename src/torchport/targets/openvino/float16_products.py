"""Computes products with weights in float16 and the rest in float32, if float16 is requested on a CPU.

A model computed in float16 throughout overflows easily and silently: a sigmoid turns infinity into 1. The
sums that check for NaN would overflow, too, and every call would fall back to eager torch. Products with
weights are what costs time and memory. One that overflows float16 is infinite or NaN, and so is a sum over
all of them, an additional output of the model: the caller then repeats the call in float32. Kernels also
accumulate in float16, with an error that grows with the length; so a long product is split into shorter ones,
added in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from torchport.targets.mapped_payload import Bytes, new_payload
from torchport.targets.openvino.library import openvino

# Computes each op in its tensors' precision, if the processor supports it, rather than all ops in one.
KEEP_TENSOR_PRECISION = {"EXECUTION_MODE_HINT": "ACCURACY"}
# The most terms accumulated in float16: half of the error of that is bfloat16's rounding of the result.
MOST_ADDED = 1024
# In elements. Products with smaller weights gain less than the casts cost.
_LEAST_WEIGHTS = 1 << 18
# How many products' results are summed together: they stay in memory until then.
_TOGETHER = 16
# How far float16 may round a weight, relative to the largest one.
_MOST_MOVED = 2.0**-10


def write_half_products(model: Any) -> Bytes | None:
    """Rewrite a model's products with weights in float16, and add their sum as one more output.

    Returns the memory of the new weights, which the caller must keep; None if nothing was rewritten. A model
    that contains float16 itself is left unchanged.
    """
    nodes = model.get_ordered_ops()
    half = openvino().Type.f16
    if any(port.get_element_type() == half for node in nodes for port in node.outputs()):
        return None
    products = [node for node in nodes if _is_by_weights(node)]
    room = new_payload(sum(2 * math.prod(node.get_input_shape(1)) for node in products))
    left = room.view(numpy.float16)
    results = []
    for node in products:
        weights = _weights_of(node)
        if weights is not None:
            results.append(_replace(node, weights, left))
            left = left[weights.numel() :]
    if not results:
        return None
    model.add_outputs([_sum_of(results).output(0)])
    model.validate_nodes_and_infer_types()
    return room


def _is_by_weights(node: Any) -> bool:
    """Whether a node is a product with a weight that is large enough."""
    if node.get_type_name() != "MatMul":
        return False
    constant, types = node.input_value(1).get_node(), openvino().Type
    if constant.get_type_name() != "Constant" or constant.get_element_type() not in (types.bf16, types.f32):
        return False
    shape = list(constant.get_output_shape(0))
    large = len(shape) == 2 and shape[0] * shape[1] >= _LEAST_WEIGHTS
    return large and not node.get_attributes()["transpose_a"]


def _weights_of(node: Any) -> torch.Tensor | None:
    """Return a product's weights in float16, one row per output; None if that loses too much precision."""
    constant, types = node.input_value(1).get_node(), openvino().Type
    values = constant.get_data()
    if constant.get_element_type() == types.bf16:
        given = torch.tensor(values.view("int16")).view(torch.bfloat16)
    else:
        given = torch.tensor(values)
    moved = given.half()
    largest = given.abs().max().float()
    if not moved.isfinite().all() or (moved.float() - given.float()).abs().max() > largest * _MOST_MOVED:
        return None
    return moved if node.get_attributes()["transpose_b"] else moved.t()


def _replace(node: Any, weights: torch.Tensor, room: Any) -> Any:
    """Replace a product by one in float16; return its result in float32. Its weights are put in `room`."""
    opset = openvino().opset13
    name, dtype = node.get_friendly_name(), node.get_output_element_type(0)
    users = list(node.output(0).get_target_inputs())
    pieces = weights.split(MOST_ADDED, dim=1)
    left = opset.convert(node.input_value(0), "f16")
    lengths = opset.constant([piece.shape[1] for piece in pieces])
    lefts = opset.variadic_split(left, opset.constant(-1), lengths).outputs() if len(pieces) > 1 else [left]
    terms = []
    for part, piece in zip(lefts, pieces, strict=True):
        kept, room = room[: piece.numel()].reshape(piece.shape), room[piece.numel() :]
        torch.from_numpy(kept).copy_(piece)
        right = opset.constant(kept, shared_memory=True)
        product = opset.matmul(part, right, transpose_a=False, transpose_b=True)
        product.set_friendly_name(name)  # the name by which a profile finds the op
        terms.append(opset.convert(product, "f32"))
    total = terms[0]
    for term in terms[1:]:
        total = opset.add(total, term)
    back = opset.convert(total, dtype.get_type_name())
    for user in users:
        user.replace_source_output(back.output(0))
    return total


def _sum_of(results: list[Any]) -> Any:
    """Return a number that is finite only if all elements of all results are."""
    opset = openvino().opset13
    sums = []
    for start in range(0, len(results), _TOGETHER):
        flat = [opset.reshape(one, opset.constant([-1]), False) for one in results[start : start + _TOGETHER]]
        joined = opset.concat(flat, 0) if len(flat) > 1 else flat[0]
        sums.append(opset.reduce_sum(joined, opset.constant([0]), False))
    total = sums[0]
    for one in sums[1:]:
        total = opset.add(total, one)
    return total
