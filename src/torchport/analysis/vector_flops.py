"""The floating-point operations of ops other than matrix products.

Tables give the operations per element, so that a norm costs more than a sum; other arithmetic counts one.
Moving data costs nothing, and neither does integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from torchport.capture import OpCall
from torchport.records import TensorSpec


def _by_op(ops: Mapping[int, str]) -> dict[str, int]:
    return {f"aten::{name}": steps for steps, names in ops.items() for name in names.split()}


# Operations per element of the first tensor, as for a norm or a softmax.
#   softmax: maximum, difference, exponential, sum, quotient
#   a norm: sum, difference, square and sum of squares for its statistics; to apply it, the difference, the
#   product with 1/σ, and the affine part's product and sum
_FOR_EACH_INPUT = _by_op(
    {
        0: "embedding_bag",
        2: "linalg_vector_norm",
        4: "_softmax_backward_data _log_softmax_backward_data _native_batch_norm_legit_no_training "
        "_fused_rms_norm rms_norm var std var_mean std_mean",
        5: "_softmax _log_softmax softmax log_softmax",
        8: "native_layer_norm layer_norm native_group_norm group_norm native_batch_norm batch_norm "
        "_native_batch_norm_legit _native_batch_norm_legit_functional instance_norm",
        14: "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward",
    }
)
_NOT_TRAINING = 4  # a batch norm that uses running statistics
# Operations per element of the result.
_FOR_EACH_RESULT = _by_op(
    {
        2: "addcmul addcdiv addcmul_ addcdiv_",
        3: "lerp upsample_linear1d",
        11: "upsample_bilinear2d _upsample_bilinear2d_aa grid_sampler_2d grid_sampler",
        27: "upsample_trilinear3d",
        63: "upsample_bicubic2d",
    }
)
# Reductions: one operation per element of the input, however small the result.
_REDUCTIONS = frozenset(
    """
    sum mean prod amax amin max min aminmax argmax argmin all any logsumexp cumsum cumprod logcumsumexp
    nansum norm avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool2d
    adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    mkldnn_max_pool2d quantized_max_pool2d nll_loss_forward nll_loss2d_forward embedding_dense_backward
    _embedding_bag sort topk segment_reduce cross_entropy_loss scatter_add scatter_add_ index_add index_add_
    trace
    """.split()
)
# Ops that are tagged `pointwise` but compute nothing.
_COPIES = frozenset(
    "clone copy copy_ _to_copy fill fill_ zero_ zeros_like ones_like full_like detach alias where "
    "masked_fill masked_fill_ bernoulli bernoulli_ uniform_ normal_ isnan isinf logical_not positive".split()
)
_UNKNOWN_PREFIXES = tuple(
    f"aten::{name}"
    for name in "linalg_ _linalg_ cholesky lu_ ormqr _cdist _ctc_loss _pdist _trilinear renorm _sparse "
    "sspaddmm".split()
)


def vector_flops(call: OpCall) -> int | None:
    """Return the floating-point operations of an op without matrix products; None if they are unknown."""
    if not any(_is_floating(spec) for _, spec in call.tensors()):
        return 0 if call.op.namespace == "aten" else None
    name = call.name
    base = name.partition("::")[2]
    source = next((spec for _, spec in call.tensors()), None)
    elements = _elements(source)
    if name.startswith("aten::_fft"):
        return _fourier(call, elements)
    if name in _FOR_EACH_INPUT:
        steps = _FOR_EACH_INPUT[name]
        if call.arguments.get("training") is False:
            steps = _NOT_TRAINING
        return steps * elements
    if name in _FOR_EACH_RESULT:
        return _FOR_EACH_RESULT[name] * _elements(call.results[0])
    if base in _COPIES:
        return 0
    if base in _REDUCTIONS or torch.Tag.reduction in call.op.tags:
        return elements
    if torch.Tag.pointwise in call.op.tags or base.endswith("_backward"):
        return _elements(call.results[0] if call.results else source)
    if call.op.namespace not in ("aten", "prims") or name.startswith(_UNKNOWN_PREFIXES):
        return None
    return 0  # all other ATen ops only move data


def _fourier(call: OpCall, elements: int) -> int:
    """Return the usual count for a fast Fourier transform: 5 n log₂ n."""
    source = call.tensor("self")
    dims = call.arguments.get("dim")
    length = math.prod(source.shape[dim] for dim in dims) if isinstance(dims, tuple) else elements
    return int(5 * elements * math.log2(max(length, 2)))


def _elements(spec: TensorSpec | None) -> int:
    return 0 if spec is None or min(spec.shape, default=1) < 0 else spec.elements


def _is_floating(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat", "complex"))
