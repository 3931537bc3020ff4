"""The bytes that an op reads and writes: each tensor once, none for a view, only the rows of a look-up."""

from __future__ import annotations

import functools

from torchport.capture import OpCall, schema_arguments
from torchport.records import ITEM_SIZES, TensorSpec
from torchport.torch_private import OpOverload

# Ops that read as many elements of their first tensor as they return.
_LOOK_UPS = frozenset(
    "embedding index_select gather index take take_along_dim _unsafe_index embedding_bag".split()
)
# Ops that overwrite their first tensor without reading it.
_OVERWRITES = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ set_ resize_ arange".split()
)
# Ops that allocate memory without accessing it, or return a view.
_FREE = frozenset(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided _unsafe_view alias detach
    detach_ lift lift_fresh as_strided as_strided_ resize_ set_ _reshape_alias view _local_scalar_dense item
    """.split()
)


def bytes_moved(call: OpCall) -> tuple[int, int]:
    """Return how many bytes an op reads, and how many it writes.

    A tensor whose size is known only at run time counts as 0 bytes.
    """
    base = call.name.partition("::")[2]
    if base in _FREE or is_view(call.op):
        return 0, 0
    written_names = _written(call.op)
    written = sum(tensor_bytes(spec) for name, spec in call.tensors() if name.split("[")[0] in written_names)
    if not written:
        written = sum(tensor_bytes(spec) for spec in call.results if spec is not None)
    skipped = _unread(call.op, base)
    read = 0
    for place, (name, spec) in enumerate(call.tensors()):
        if base in _LOOK_UPS and place == 0:
            read += sum(tensor_bytes(result) for result in call.results[:1] if result is not None)
        elif name.split("[")[0] not in skipped:
            read += tensor_bytes(spec)
    return read, written


def tensor_bytes(spec: TensorSpec) -> int:
    """Return a tensor's bytes; 0 if a size is known only at run time."""
    if min(spec.shape, default=0) < 0:
        return 0
    return spec.elements * ITEM_SIZES.get(spec.dtype, 1)  # dtypes narrower than a byte count as one


@functools.lru_cache(maxsize=4096)
def is_view(op: OpOverload) -> bool:
    """Return whether all of an op's results are views of its arguments."""
    returns = op._schema.returns
    return bool(returns) and all(
        entry.alias_info is not None and not entry.alias_info.is_write for entry in returns
    )


@functools.lru_cache(maxsize=4096)
def _written(op: OpOverload) -> frozenset[str]:
    return frozenset(argument.name for argument in schema_arguments(op) if argument.written)


@functools.lru_cache(maxsize=4096)
def _unread(op: OpOverload, base: str) -> frozenset[str]:
    """Return the arguments that an op writes without reading them."""
    written = _written(op)
    return written if base in _OVERWRITES or "out" in written else frozenset()
