"""Finds models for which OpenVINO's snippets, its JIT-compiled fused kernels, must be disabled.

OpenVINO 2026.4 fuses attention and the elementwise ops that follow it into one kernel. Where such an op has a
second computed operand and its result is read more than once, as our sums do with each result, the process
crashes with a segmentation fault on ARM. Models that project the result first, as most do, are unaffected.

It also fuses products of a few rows with small weights that follow each other, and if one of the weights is
in eight bits the results are arbitrary. Whether it does depends on the number of threads.

On ARM it also compiles a SiLU after a convolution as a snippet, although the convolution's kernel could
compute it as it writes: the extra read and write take a sixth of EfficientNet's time.
"""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy

from torchport.targets.openvino.ir_graph import reading_ops
from torchport.targets.openvino.library import openvino

# Makes OpenVINO generate no such kernels.
WITHOUT_MERGED_KERNELS = {"SNIPPETS_MODE": "DISABLE"}

# Ops that fusion continues through.
_MOVES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Transpose", "Convert"})
# Ops that end it, because they read their operands from memory.
_ENDS = frozenset(
    {"MatMul", "Convolution", "GroupConvolution", "Result", "Concat", "Gather", "ShapeOf", "ScatterUpdate"}
)

# Products with more rows, or with weights of a larger dimension, are not fused with each other. OpenVINO
# 2026.4 fuses up to 8 rows.
_MOST_ROWS, _LARGEST_WEIGHT = 16, 256

# Ops that are fused into a convolution before its SiLU.
_SCALES = frozenset({"Multiply", "Add", "Subtract", "Divide", "BatchNormInference"})


def has_wrong_products(model: Any) -> bool:
    """Whether a model has products that might be fused with each other, one of them with an 8-bit weight."""
    products = [node for node in model.get_ops() if node.get_type_name() == "MatMul" and _is_small(node)]
    return any(_follows_another(node) for node in products)


def _is_small(product: Any) -> bool:
    """Whether a product has few rows and a small weight."""
    shape, weight = product.get_output_partial_shape(0), product.get_input_partial_shape(1)
    if shape.is_dynamic or weight.is_dynamic or max(weight.to_shape()) > _LARGEST_WEIGHT:
        return False
    return bool(math.prod(list(shape.to_shape())[:-1]) <= _MOST_ROWS)


def _is_in_eight_bits(product: Any) -> bool:
    found = product.input_value(1).get_node()
    while found.get_type_name() in _SCALES | _MOVES:
        found = found.input_value(0).get_node()
    return found.get_type_name() == "Constant" and found.get_element_type().get_type_name() in ("i8", "u8")


def _follows_another(product: Any) -> bool:
    """Whether a small product reads what is computed from another's result, and either weight has 8 bits."""
    seen: set[str] = set()
    waiting = [product.input_value(0).get_node()]
    while waiting:
        found = waiting.pop()
        if found.get_name() in seen:
            continue
        seen.add(found.get_name())
        if found.get_type_name() == "MatMul":
            if _is_small(found) and (_is_in_eight_bits(found) or _is_in_eight_bits(product)):
                return True
        elif found.get_type_name() not in _ENDS and not found.get_type_name().startswith("Reduce"):
            waiting += [found.input_value(index).get_node() for index in range(found.get_input_size())]
    return False


def separate_negative_scales(model: Any) -> None:
    """Keep tensors that are multiplied by negative numbers, by channel, from being scaled while rounded.

    With snippets disabled, OpenVINO scales the limits of a FakeQuantize instead, and confuses the upper and
    the lower one. It does not do so over a maximum, here with a number that is less than any limit.
    """
    opset = openvino().opset13
    for node in model.get_ops():
        source = node.input_value(0) if node.get_type_name() == "FakeQuantize" else None
        if source is None or source.get_element_type().get_type_name() != "f32":
            continue
        if _has_negative_scale(source.get_node()):
            number = opset.constant(numpy.float32(-numpy.finfo(numpy.float32).max))
            node.input(0).replace_source_output(opset.maximum(source, number).output(0))


def _has_negative_scale(found: Any) -> bool:
    while found.get_type_name() in _SCALES and _computed_operands(found) == 1:
        operands = [found.input_value(index).get_node() for index in range(found.get_input_size())]
        constants = [_behind_moves(each) for each in operands]
        if found.get_type_name() in ("Multiply", "Divide") and any(_is_negative(each) for each in constants):
            return True
        found = next(each for each in operands if _behind_moves(each).get_type_name() != "Constant")
    return False


def _is_negative(constant: Any) -> bool:
    """Whether a constant has several elements, of which one is negative."""
    if constant.get_type_name() != "Constant":
        return False
    data = constant.get_data()
    return data.size > 1 and bool(data.min() < 0)


def is_slower_merged(model: Any) -> bool:
    """Whether the processor is an ARM one and a model has a SiLU after a convolution."""
    return platform.machine().lower() in ("aarch64", "arm64") and has_silu_behind_convolution(model)


def has_silu_behind_convolution(model: Any) -> bool:
    """Whether a SiLU reads a convolution's result, possibly scaled and shifted."""
    return any(_is_behind_convolution(node) for node in model.get_ops() if node.get_type_name() == "Swish")


def _is_behind_convolution(silu: Any) -> bool:
    found = silu.input_value(0).get_node()
    while found.get_type_name() in _SCALES and _computed_operands(found) == 1:
        operands = [found.input_value(index).get_node() for index in range(found.get_input_size())]
        found = next(each for each in operands if _behind_moves(each).get_type_name() != "Constant")
    return found.get_type_name() in ("Convolution", "GroupConvolution")


def has_crashing_attention(model: Any) -> bool:
    """Whether a model has attention that makes OpenVINO crash on ARM when fused."""
    return any(_is_attention(node) and _meets_computed_operand(node) for node in model.get_ops())


def _is_attention(node: Any) -> bool:
    if node.get_type_name() == "ScaledDotProductAttention":
        return True
    return node.get_type_name() == "MatMul" and _source(node, 0).get_type_name() in ("Softmax", "SoftMax")


def _source(node: Any, index: int) -> Any:
    """Return the node that computes an operand, skipping those that only move data."""
    return _behind_moves(node.input_value(index).get_node())


def _behind_moves(found: Any) -> Any:
    while found.get_type_name() in _MOVES:
        found = found.input_value(0).get_node()
    return found


def _meets_computed_operand(attention: Any) -> bool:
    seen: set[str] = set()
    waiting = [attention]
    while waiting:
        node = waiting.pop()
        for user in reading_ops(node):
            kind, name = user.get_type_name(), user.get_name()  # not the friendly name, which a file sets
            if name in seen or kind in _ENDS or kind.startswith("Reduce"):
                continue
            seen.add(name)
            if kind not in _MOVES and _computed_operands(user) > 1:
                return True
            waiting.append(user)
    return False


def _computed_operands(node: Any) -> int:
    sources = [_source(node, index) for index in range(node.get_input_size())]
    return sum(source.get_type_name() != "Constant" for source in sources)
