"""Decides which ops a file may call, from the op's schema and a short list of exceptions.

A file's graph may call functional ATen ops that check their own arguments. It may not call ops that write to
their arguments, take strides or storages, read files, or change the process, nor ops of another library
unless the caller names it.
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

# The types in arguments and results of a permitted op. A generator cannot be stored in a file, so such an
# argument always has its default.
_ARGUMENTS = set("Tensor int bool float number str Device ScalarType Layout MemoryFormat Generator".split())
_RESULTS = {"Tensor", "int", "bool", "float", "number"}

# Words in the names of ops on raw memory, on files, on layouts other than strided, or of one library. Ops of
# backward passes trust the tensors that the forward pass claims to have saved.
_WORDS = frozenset(
    """
    strided stride storage resize file set pin pinned lift data device version unsafe backward jvp
    sparse csr csc bsr bsc coo dense nested jagged padded quantized quantize dequantize q qscheme qparams
    cudnn distributed fbgemm miopen mkldnn mps overrideable vulkan
    """.split()
)

# Names with a leading underscore are torch's internals, which rely on their callers' checks. These occur in
# graphs after torch.export's and the targets' decompositions, and do check their arguments.
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

# Quantization simulated in floats: each element is rounded, and the quantization parameters are checked.
_SIMULATED = frozenset(("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask"))

# Ops without results that raise: torch.export's assertions about a graph.
_ASSERTIONS = frozenset(
    """
    _assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size
    """.split()
)

# Functional by their schemas, but they write running statistics ...
_UNDECLARED_WRITES = frozenset(
    """
    batch_norm instance_norm native_batch_norm batch_norm_update_stats batch_norm_gather_stats
    batch_norm_gather_stats_with_counts cov corrcoef
    """.split()
)
# ... or read out of bounds if their arguments are inconsistent, as tests/conformance found. Captures
# decompose the recurrent ones.
_UNCHECKED = frozenset(
    """
    embedding_renorm linalg_ldl_solve lu_unpack segment_reduce lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell
    """.split()
)

_named: ContextVar[frozenset[str]] = ContextVar("_named", default=frozenset())


@contextmanager
def permitting(namespaces: Iterable[str]) -> Iterator[None]:
    """Let files call ops of libraries other than torch in this context: the caller knows them to be safe."""
    token = _named.set(_named.get() | set(namespaces))
    try:
        yield
    finally:
        _named.reset(token)


def permitted_namespaces() -> frozenset[str]:
    """Return the libraries whose ops files may call: those that the caller or the environment names."""
    given = os.environ.get(NAMESPACES_VARIABLE, "")
    return _named.get() | {name.strip() for name in given.split(",") if name.strip()}


def namespaces_of(graph: fx.Graph) -> set[str]:
    """Return the libraries whose ops a graph calls: whoever has it in memory has imported them."""
    return {node.target.namespace for node in graph.nodes if isinstance(node.target, OpOverload)}


def find_permitted(name: str) -> OpOverload:
    """Return the op of that name, if files may call it.

    Raises:
        TargetError: this torch has no such op, or it is not permitted; says why.
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
    return f"is from {space!r}, not from torch, and files may call such ops only if the caller permits it"


def _remedy(space: str) -> str:
    return f"trust them with torchport.load(path, namespaces=[{space!r}]), or {NAMESPACES_VARIABLE}={space}"


@functools.cache
def _aten_refusal(op: OpOverload) -> str:
    schema = op._schema
    base = schema.name.removeprefix("aten::")
    if not has_any_kernel(op.name()):
        return "is not an op on tensors"  # TorchScript's own functions: strings, lists, output, random state
    if schema.is_mutable:
        return "writes to its arguments"
    if not {item_type(argument) for argument in schema.arguments} <= _ARGUMENTS:
        return "takes something other than tensors and numbers"
    if base in _ASSERTIONS:
        return ""
    if not schema.returns or not {item_type(result) for result in schema.returns} <= _RESULTS:
        return "returns something other than tensors and numbers"
    if base.startswith("_") and base not in _INTERNAL:
        return "is internal to torch, and does not check its arguments"
    if base not in _INTERNAL | _SIMULATED and _WORDS & set(base.split("_")):
        return "works on raw memory, layouts or devices, or on tensors that a forward pass saved"
    if base in _UNDECLARED_WRITES:
        return "writes to its arguments"
    return "does not check its arguments" if base in _UNCHECKED else ""


def item_type(argument: Argument) -> str:
    """Return the innermost type of a schema's argument: `Tensor` for `List[Optional[Tensor]]`."""
    written = str(argument.real_type)  # `type` says `int` for dtypes and layouts
    return written.rsplit("[", 1)[-1].rstrip("]")
