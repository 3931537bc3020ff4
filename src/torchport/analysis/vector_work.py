"""The floating-point operations of what is no matrix product: one an element, or as many as it takes.

What an op does to each element is a table here, so that a norm costs more than a sum. Moving data costs none,
and neither do whole numbers.
"""

from __future__ import annotations

import math

import torch

from torchport.capture import OpCall
from torchport.records import TensorSpec

# Operations for each element of the first tensor: what a norm or a softmax does to every one of them.
#   softmax: the largest, the difference, the exponential, the sum, the quotient
#   a norm's statistics: the sum, the difference, its square and the sum of those; its use: the difference,
#   the product with 1/σ, and the product and sum of the affine part
_FOR_EACH_INPUT = {
    "aten::_softmax": 5,
    "aten::_log_softmax": 5,
    "aten::softmax": 5,
    "aten::log_softmax": 5,
    "aten::_softmax_backward_data": 4,
    "aten::_log_softmax_backward_data": 4,
    "aten::native_layer_norm": 8,
    "aten::layer_norm": 8,
    "aten::native_group_norm": 8,
    "aten::group_norm": 8,
    "aten::native_batch_norm": 8,
    "aten::batch_norm": 8,
    "aten::_native_batch_norm_legit": 8,
    "aten::_native_batch_norm_legit_functional": 8,
    "aten::_native_batch_norm_legit_no_training": 4,
    "aten::_fused_rms_norm": 4,
    "aten::rms_norm": 4,
    "aten::instance_norm": 8,
    "aten::native_layer_norm_backward": 14,
    "aten::native_group_norm_backward": 14,
    "aten::native_batch_norm_backward": 14,
    "aten::embedding_bag": 0,
    "aten::var": 4,
    "aten::std": 4,
    "aten::var_mean": 4,
    "aten::std_mean": 4,
    "aten::linalg_vector_norm": 2,
}
_NOT_TRAINING = 4  # a batch norm that is handed its statistics
# Operations for each element of the result.
_FOR_EACH_RESULT = {
    "aten::addcmul": 2,
    "aten::addcdiv": 2,
    "aten::addcmul_": 2,
    "aten::addcdiv_": 2,
    "aten::lerp": 3,
    "aten::upsample_bilinear2d": 11,
    "aten::_upsample_bilinear2d_aa": 11,
    "aten::upsample_bicubic2d": 63,
    "aten::upsample_linear1d": 3,
    "aten::upsample_trilinear3d": 27,
    "aten::grid_sampler_2d": 11,
    "aten::grid_sampler": 11,
}
# These reduce: each element of the input is met once, however small the result.
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
# These say `pointwise` of themselves and compute nothing.
_COPIES = frozenset(
    "clone copy copy_ _to_copy fill fill_ zero_ zeros_like ones_like full_like detach alias where "
    "masked_fill masked_fill_ bernoulli bernoulli_ uniform_ normal_ isnan isinf logical_not positive".split()
)
_UNKNOWN_PREFIXES = (
    "aten::linalg_",
    "aten::_linalg_",
    "aten::cholesky",
    "aten::lu_",
    "aten::ormqr",
    "aten::_cdist",
    "aten::_ctc_loss",
    "aten::_pdist",
    "aten::_trilinear",
    "aten::renorm",
    "aten::_sparse",
    "aten::sspaddmm",
)


def vector_flops(call: OpCall) -> int | None:
    """Return an op's floating-point operations beside its products; None where nobody knows them."""
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
    return 0  # the rest of ATen moves data


def _fourier(call: OpCall, elements: int) -> int:
    """The usual count for a fast transform: 5 n log₂ n."""
    source = call.tensor("self")
    dims = call.arguments.get("dim")
    length = math.prod(source.shape[dim] for dim in dims) if isinstance(dims, tuple) else elements
    return int(5 * elements * math.log2(max(length, 2)))


def _elements(spec: TensorSpec | None) -> int:
    return 0 if spec is None or min(spec.shape, default=1) < 0 else spec.elements


def _is_floating(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat", "complex"))
