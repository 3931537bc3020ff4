"""Finds models for which OpenVINO must not compile elementwise ops into kernels of their own.

OpenVINO 2026.4 compiles attention and the elementwise ops that follow it into one kernel. Where such an op
has a second computed operand and its result is read more than once, as each result is by our sums, the
process ends in a segmentation fault on ARM. Models that project the result first, as most do, are not hit.

On ARM it does so with a SiLU behind a convolution too, whose own kernel could compute it as it writes: the
results are read and written once more, a sixth of EfficientNet's time.
"""

from __future__ import annotations

import platform
from typing import Any

from torchport.targets.openvino.ir_graph import reading_ops

# The setting with which OpenVINO makes no such kernels.
WITHOUT_MERGED_KERNELS = {"SNIPPETS_MODE": "DISABLE"}

# What the merging goes on through.
_MOVES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Transpose", "Convert"})
# Where it ends, for what they compute is read from memory.
_ENDS = frozenset(
    {"MatMul", "Convolution", "GroupConvolution", "Result", "Concat", "Gather", "ShapeOf", "ScatterUpdate"}
)

# What becomes part of a convolution before its SiLU does.
_SCALES = frozenset({"Multiply", "Add", "Subtract", "Divide", "BatchNormInference"})


def is_slower_merged(model: Any) -> bool:
    """Whether a model has such a SiLU, and the processor is an ARM one."""
    return platform.machine().lower() in ("aarch64", "arm64") and has_silu_behind_convolution(model)


def has_silu_behind_convolution(model: Any) -> bool:
    """Whether a SiLU reads a convolution's result, scaled and shifted or as it is."""
    return any(_is_behind_convolution(node) for node in model.get_ops() if node.get_type_name() == "Swish")


def _is_behind_convolution(silu: Any) -> bool:
    found = silu.input_value(0).get_node()
    while found.get_type_name() in _SCALES and _computed_operands(found) == 1:
        operands = [found.input_value(index).get_node() for index in range(found.get_input_size())]
        found = next(each for each in operands if _behind_moves(each).get_type_name() != "Constant")
    return found.get_type_name() in ("Convolution", "GroupConvolution")


def is_added_to(model: Any) -> bool:
    """Whether a model has such attention."""
    return any(_is_attention(node) and _meets_an_operand(node) for node in model.get_ops())


def _is_attention(node: Any) -> bool:
    if node.get_type_name() == "ScaledDotProductAttention":
        return True
    return node.get_type_name() == "MatMul" and _source(node, 0).get_type_name() in ("Softmax", "SoftMax")


def _source(node: Any, index: int) -> Any:
    """Return what computes an operand, without those that only move it."""
    return _behind_moves(node.input_value(index).get_node())


def _behind_moves(found: Any) -> Any:
    while found.get_type_name() in _MOVES:
        found = found.input_value(0).get_node()
    return found


def _meets_an_operand(attention: Any) -> bool:
    seen: set[str] = set()
    waiting = [attention]
    while waiting:
        node = waiting.pop()
        for user in reading_ops(node):
            kind, name = user.get_type_name(), user.get_name()  # not the friendly one, which a file chooses
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
