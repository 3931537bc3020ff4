"""Which ops a file may call: a decision from the op's schema, with a short list of exceptions.

A file's graph calls functional ATen ops that check their own arguments. Nothing that writes, takes strides or
storages, reads files, or changes the process; nothing of another library, unless the caller names it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import fx

from torchport.errors import TargetError
from torchport.torch_private import Argument, OpOverload, has_any_kernel

NAMESPACES_VARIABLE = "TORCHPORT_NAMESPACES"

# What arguments and results of a permitted op are made of. A generator has no form in a file, so that such an
# argument is always the default.
_ARGUMENTS = set("Tensor int bool float number str Device ScalarType Layout MemoryFormat Generator".split())
_RESULTS = {"Tensor", "int", "bool", "float", "number"}

# Words in the names of ops on memory as such, on files, on other layouts than strided, or of one library.
# Those of backward passes believe what the forward pass is said to have kept.
_WORDS = frozenset(
    """
    strided stride storage resize file set pin pinned lift data device version unsafe backward jvp
    sparse csr csc bsr bsc coo dense nested jagged padded quantized quantize dequantize q qscheme qparams
    cudnn distributed fbgemm miopen mkldnn mps overrideable vulkan
    """.split()
)

# Names with an underscore in front are torch's internals, which rely on their callers' checks. These are what
# torch.export's and the targets' decompositions leave in graphs, and they check their arguments themselves.
_INTERNAL = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _conj _conj_physical _conv_depthwise2d
    _functional_assert_scalar _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _local_scalar_dense _log_softmax _neg_view _prelu_kernel _safe_softmax
    _scaled_dot_product_flash_attention_for_cpu _softmax _to_copy _trilinear _unsafe_view
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d
    """.split()
)

# Quantization simulated in floats: each element is rounded, and their numbers are checked.
_SIMULATED = frozenset(("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask"))

# They give nothing and raise: what torch.export noted that a graph relies on.
_ASSERTIONS = frozenset(
    """
    _assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size
    """.split()
)

# Functional by their schemas, and yet they write running statistics ...
_WRITE_UNSAID = frozenset(
    """
    batch_norm instance_norm native_batch_norm batch_norm_update_stats batch_norm_gather_stats
    batch_norm_gather_stats_with_counts cov corrcoef
    """.split()
)
# ... or read beyond their tensors if arguments do not fit each other, which tests/conformance found out.
# Captures take the recurrent ones apart.
_UNCHECKED = frozenset(
    """
    embedding_renorm linalg_ldl_solve lu_unpack segment_reduce lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell
    """.split()
)

_named: ContextVar[frozenset[str]] = ContextVar("_named", default=frozenset())


@contextmanager
def permitting(namespaces: Iterable[str]) -> Iterator[None]:
    """Let files call ops of other libraries than torch, meanwhile: the caller knows them to be safe."""
    token = _named.set(_named.get() | set(namespaces))
    try:
        yield
    finally:
        _named.reset(token)


def permitted_namespaces() -> frozenset[str]:
    """Return the libraries whose ops files may call: what the caller names, here or in the environment."""
    given = os.environ.get(NAMESPACES_VARIABLE, "")
    return _named.get() | {name.strip() for name in given.split(",") if name.strip()}


def namespaces_of(graph: fx.Graph) -> set[str]:
    """Return the libraries whose ops a graph calls: who has it in memory imported them."""
    return {node.target.namespace for node in graph.nodes if isinstance(node.target, OpOverload)}


def find_permitted(name: str) -> OpOverload:
    """Return the op of that name, if files may call it.

    Raises:
        TargetError: this torch has none, or it is not permitted; says why.
    """
    space, _, rest = name.partition(".")
    if space != "aten" and space not in permitted_namespaces():
        raise TargetError(f"{name} {_foreign(space)}", remedy=_remedy(space))
    base, _, overload = rest.partition(".")
    try:
        found: object = getattr(getattr(getattr(torch.ops, space), base), overload)
    except AttributeError as error:
        raise TargetError(
            f"this torch has no op {name}", remedy="import the library that defines it, or compile again"
        ) from error
    if not isinstance(found, OpOverload) or str(found) != name:
        raise TargetError(f"{name} is not an op of torch")
    reason = why_refused(found)
    if reason:
        raise TargetError(f"{name} {reason}")
    return found


def why_refused(op: OpOverload) -> str:
    """Return why files may not call an op, as the rest of a sentence about it; empty if they may."""
    space = op.namespace
    if space == "aten":
        return _aten_refusal(op)
    if space not in permitted_namespaces():
        return _foreign(space)
    return "writes to its arguments" if op._schema.is_mutable else ""


def _foreign(space: str) -> str:
    return f"is not of torch but of {space!r}, and files call such ops only where the caller names them"


def _remedy(space: str) -> str:
    return f"trust them with torchport.load(path, namespaces=[{space!r}]), or {NAMESPACES_VARIABLE}={space}"


@functools.cache
def _aten_refusal(op: OpOverload) -> str:
    schema = op._schema
    base = schema.name.removeprefix("aten::")
    if not has_any_kernel(op.name()):
        return "is not an op on tensors"  # TorchScript's own functions: texts, lists, output, random state
    if schema.is_mutable:
        return "writes to its arguments"
    if not {item_type(argument) for argument in schema.arguments} <= _ARGUMENTS:
        return "takes something other than tensors and numbers"
    if base in _ASSERTIONS:
        return ""
    if not schema.returns or not {item_type(result) for result in schema.returns} <= _RESULTS:
        return "gives something other than tensors and numbers"
    if base.startswith("_") and base not in _INTERNAL:
        return "is internal to torch, and does not check its arguments"
    if base not in _INTERNAL | _SIMULATED and _WORDS & set(base.split("_")):
        return "works on memory, layouts or devices as such, or on what a forward pass kept"
    if base in _WRITE_UNSAID:
        return "writes to its arguments"
    return "does not check its arguments" if base in _UNCHECKED else ""


def item_type(argument: Argument) -> str:
    """Return what an argument of a schema is made of: `Tensor` for `List[Optional[Tensor]]`."""
    written = str(argument.real_type)  # `type` says `int` for dtypes and layouts
    return written.rsplit("[", 1)[-1].rstrip("]")
