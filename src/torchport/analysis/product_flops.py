"""The floating-point operations of matrix products, convolutions and attention: two per multiply-add.

Each op has one formula, on the shapes of its arguments. A bias adds nothing: accumulation starts from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

from torch.utils.flop_counter import flop_registry

from torchport.capture import OpCall
from torchport.records import TensorSpec

Formula = Callable[[OpCall], int]


def product_flops(call: OpCall) -> int | None:
    """Return the operations of an op's products; None for an op without matrix products.

    An op for which a formula was registered in torch, with `register_flop_formula`, is counted by it.
    """
    formula = FORMULAS.get(call.name)
    if formula is not None:
        return formula(call)
    registered = flop_registry.get(call.op.overloadpacket)
    return None if registered is None else _by_torch(registered, call)


def _by_torch(formula: Callable[..., int], call: OpCall) -> int | None:
    def bare(value: object) -> object:
        if isinstance(value, TensorSpec):
            return _Shaped(value.shape)
        return [bare(item) for item in value] if isinstance(value, tuple) else value

    results = [None if result is None else _Shaped(result.shape) for result in call.results]
    positional = [bare(value) for value in call.arguments.values()]
    try:
        return int(formula(*positional, out_val=results[0] if len(results) == 1 else tuple(results)))
    except (TypeError, ValueError, AttributeError, AssertionError, IndexError, RuntimeError):
        return None  # the formula needs more than shapes


class _Shaped:
    """A stand-in for a tensor in torch's formulas, with a shape only."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def _sizes(call: OpCall, argument: str) -> tuple[int, ...]:
    return call.tensor(argument).shape


def _result(call: OpCall) -> tuple[int, ...]:
    result = call.results[0]
    return () if result is None else result.shape


def _rows_by_matrix(rows: str, matrix: str) -> Formula:
    """Return the formula of (…, k) times (…, k, n): each element is multiplied with one row of the matrix."""
    return lambda call: 2 * math.prod(_sizes(call, rows)) * _sizes(call, matrix)[-1]


def _matmul(call: OpCall) -> int:
    left, right = _sizes(call, "self"), _sizes(call, "other")
    return 2 * math.prod(_result(call)) * (left[-1] if left else 1) if right else 0


def _linear(source: str, weight: str) -> Formula:
    """Return the formula of (…, k) times a transposed weight (n, k)."""
    return lambda call: 2 * math.prod(_sizes(call, source)) * math.prod(_sizes(call, weight)[:-1])


def _by_result(source: str) -> Formula:
    """Return the formula of a packed weight, whose number of columns only the result's shape reveals."""
    return lambda call: 2 * math.prod(_sizes(call, source)) * _result(call)[-1]


def _convolution(call: OpCall) -> int:
    return _filtered(call, _result(call), bool(call.arguments.get("transposed", False)))


def _transposed_convolution(call: OpCall) -> int:
    return _filtered(call, _result(call), True)


def _filtered(call: OpCall, result: tuple[int, ...], transposed: bool) -> int:
    """Count each element of the result (of the input, if transposed) times the filter's channels × size."""
    weight = _sizes(call, "weight")
    return 2 * math.prod(_sizes(call, "input") if transposed else result) * math.prod(weight[1:])


def _convolution_backward(call: OpCall) -> int:
    """Count the forward pass once for the gradient of the input, and once for that of the weight."""
    forward = _filtered(call, _sizes(call, "grad_output"), bool(call.arguments["transposed"]))
    to_input, to_weight = cast("Sequence[bool]", call.arguments["output_mask"])[:2]
    return forward * (int(to_input) + int(to_weight))


def _by_filter(weight: str, elements: str = "") -> Formula:
    """Return the formula of a filter applied to each element of the result, or of the named argument."""
    return lambda call: (
        2
        * math.prod(_sizes(call, elements) if elements else _result(call))
        * math.prod(_sizes(call, weight)[1:])
    )


def _attention_scores(call: OpCall) -> tuple[int, int, int]:
    """Return the number of scores, and the widths of keys and values."""
    query, key, value = (_sizes(call, name) for name in ("query", "key", "value"))
    return math.prod(query[:-1]) * key[-2], query[-1], value[-1]


def _attention(call: OpCall) -> int:
    """Count the products of queries and keys, and of scores and values."""
    scores, key, value = _attention_scores(call)
    return 2 * scores * (key + value)


def _attention_backward(call: OpCall) -> int:
    """Count recomputing the scores, and the gradients of scores, values, queries and keys."""
    scores, key, value = _attention_scores(call)
    return 2 * scores * (3 * key + 2 * value)


def _recurrent(call: OpCall) -> int:
    """Count all matrices of the layers for every step of every sequence."""
    source = _sizes(call, "input" if "input" in call.arguments else "data")
    return 2 * math.prod(source[:-1]) * _matrices(call, "params")


def _recurrent_layer(call: OpCall) -> int:
    matrices = sum(math.prod(_sizes(call, name)) for name in ("weight0", "weight1"))
    return 2 * math.prod(_sizes(call, "input")[:-1]) * matrices


def _recurrent_layer_backward(call: OpCall) -> int:
    """Count twice the forward pass: the gradients of the inputs, and those of the matrices."""
    matrices = sum(math.prod(_sizes(call, name)) for name in ("weight1", "weight2"))
    return 4 * math.prod(_sizes(call, "input")[:-1]) * matrices


def _fused_recurrent(call: OpCall) -> int:
    return 2 * math.prod(_sizes(call, "input")[:-1]) * _matrices(call, "weight")


def _matrices(call: OpCall, argument: str) -> int:
    weights = cast("Sequence[TensorSpec]", call.arguments[argument])
    return sum(weight.elements for weight in weights if len(weight.shape) == 2)


def _fused_attention(call: OpCall) -> int:
    """Count a multi-head attention: the three input projections, the attention and the output projection."""
    batch, length, width = _sizes(call, "query")
    keys = _sizes(call, "key")[1]
    weights = math.prod(_sizes(call, "qkv_weight")) + math.prod(_sizes(call, "proj_weight"))
    return 2 * batch * length * weights + 4 * batch * length * keys * width


def _fused_encoder_layer(call: OpCall) -> int:
    """Count a whole encoder layer: its attention and its feed-forward part."""
    batch, length, width = _sizes(call, "src")
    weights = sum(
        math.prod(_sizes(call, name))
        for name in ("qkv_weight", "proj_weight", "ffn_weight_1", "ffn_weight_2")
    )
    return 2 * batch * length * weights + 4 * batch * length * length * width


_PACKED_LINEARS = (
    "", "_relu", "_leaky_relu", "_tanh", "_dynamic", "_relu_dynamic", "_dynamic_fp16", "_relu_dynamic_fp16",
)  # fmt: skip


def _all(formula: Formula, names: str) -> dict[str, Formula]:
    return {f"aten::{name}": formula for name in names.split()}


FORMULAS: dict[str, Formula] = {
    "aten::mm": _rows_by_matrix("self", "mat2"),
    "aten::addmm": _rows_by_matrix("mat1", "mat2"),
    "aten::_addmm_activation": _rows_by_matrix("mat1", "mat2"),
    "aten::addmm_": _rows_by_matrix("mat1", "mat2"),
    "aten::bmm": _rows_by_matrix("self", "mat2"),
    "aten::baddbmm": _rows_by_matrix("batch1", "batch2"),
    "aten::baddbmm_": _rows_by_matrix("batch1", "batch2"),
    "aten::addbmm": _rows_by_matrix("batch1", "batch2"),
    "aten::mv": lambda call: 2 * math.prod(_sizes(call, "self")),
    "aten::addmv": lambda call: 2 * math.prod(_sizes(call, "mat")),
    "aten::dot": lambda call: 2 * math.prod(_sizes(call, "self")),
    "aten::vdot": lambda call: 2 * math.prod(_sizes(call, "self")),
    "aten::matmul": _matmul,
    "aten::_int_mm": _rows_by_matrix("self", "mat2"),
    "aten::_scaled_mm": _rows_by_matrix("self", "mat2"),
    "aten::_weight_int8pack_mm": _by_result("self"),
    "aten::_weight_int4pack_mm": _by_result("self"),
    "aten::_weight_int4pack_mm_for_cpu": _by_result("self"),
    "aten::_dyn_quant_matmul_4bit": _by_result("inp"),
    "aten::linear": _linear("input", "weight"),
    "aten::mkldnn_linear": _linear("self", "weight"),
    "mkldnn::_linear_pointwise": _linear("X", "W"),
    **{f"quantized::linear{kind}": _by_result("X") for kind in _PACKED_LINEARS},
    **{
        f"quantized::conv{dims}d{kind}": _by_filter("packed_weight")
        for dims in (1, 2, 3)
        for kind in ("", "_relu", "_add", "_add_relu", "_dynamic")
    },
    **{
        f"quantized::conv_transpose{dims}d{kind}": _by_filter("packed_weight", "qx")
        for dims in (1, 2, 3)
        for kind in ("", "_dynamic")
    },
    **_all(
        _convolution,
        "convolution _convolution convolution_overrideable cudnn_convolution mkldnn_convolution "
        "_slow_conv2d_forward conv1d conv2d conv3d",
    ),
    **_all(_transposed_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d"),
    "aten::convolution_backward": _convolution_backward,
    "torchvision::deform_conv2d": _by_filter("weight"),
    **_all(
        _attention,
        "scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable",
    ),
    **_all(
        _attention_backward,
        "_scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward",
    ),
    "aten::_native_multi_head_attention": _fused_attention,
    "aten::_transformer_encoder_layer_fwd": _fused_encoder_layer,
    **_all(_recurrent, "lstm gru rnn_tanh rnn_relu"),
    "aten::mkldnn_rnn_layer": _recurrent_layer,
    "aten::mkldnn_rnn_layer_backward": _recurrent_layer_backward,
    "aten::_cudnn_rnn": _fused_recurrent,
}
