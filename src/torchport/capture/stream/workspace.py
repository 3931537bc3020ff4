"""The temporary memory of a kernel, its workspace: visible to torch's allocator, but not as a tensor.

Most kernels need none, and for attention the amount is known. For convolutions, which need the most, it is
an estimate: oneDNN computes in its own memory layouts, and copies the input and the weight into them and the
result out of them; the padding of these copies depends on the processor.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from torchport.capture.stream.op_call import schema_arguments
from torchport.torch_private import OpOverload, select_conv_backend

aten = torch.ops.aten

# A model on the meta device is treated as one on the CPU.
_MODELLED_DEVICES = ("cpu", "meta")
# With at most this many channels, as in an image, oneDNN reads the input without a copy.
_FEW_CHANNELS = 4

# Elementwise: these need no workspace, unless an operand must first be converted to another dtype.
_ELEMENTWISE = frozenset(
    """
    abs add sub mul div neg exp log sin cos tanh sigmoid relu silu hardswish hardsigmoid sqrt rsqrt pow
    reciprocal square maximum minimum clamp eq ne lt le gt ge where masked_fill logical_not logical_and
    logical_or bitwise_and bitwise_or bitwise_not tanh_backward sigmoid_backward threshold_backward
    silu_backward hardswish_backward hardsigmoid_backward
    """.split()
)
# These move elements, create tensors or return views.
_MOVING = frozenset(
    """
    _reshape_alias _to_copy _unsafe_view alias arange as_strided cat clone constant_pad_nd copy detach empty
    empty_like empty_strided expand fill full full_like gather lift_fresh lift_fresh_copy new_empty
    new_empty_strided new_full new_ones new_zeros ones ones_like permute scalar_tensor select slice split
    split_with_sizes squeeze t transpose unbind unsqueeze view zero zeros zeros_like
    """.split()
)
# These copy a non-contiguous input, and read a contiguous one directly.
_CONTIGUOUS = frozenset("gelu native_layer_norm embedding _softmax _log_softmax sum mean amax amin".split())
_PRODUCTS = frozenset("mm addmm bmm baddbmm".split())


@dataclass(frozen=True, slots=True)
class Workspace:
    """The temporary memory of a kernel.

    Args:
        bytes: its peak in bytes, not counting the results.
        known: whether this is exact, except for the few bytes of a scalar that a kernel wraps as a tensor;
            otherwise it is an estimate.
    """

    bytes: int
    known: bool


_NONE = Workspace(0, known=True)
_UNKNOWN = Workspace(0, known=False)


def is_modelled_processor() -> bool:
    """Whether matmuls, attention and convolutions run in the libraries that are modelled here.

    On other processors, torch uses other libraries (on ARM, Arm's own, which copy their operands).
    """
    return platform.machine().lower() in ("x86_64", "amd64")


def workspace_of(
    op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], result: object
) -> Workspace:
    """Return the workspace of an op: the memory that it uses beyond its results."""
    tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)]
    if op.namespace != "aten" or any(tensor.device.type not in _MODELLED_DEVICES for tensor in tensors):
        return _UNKNOWN
    name = op._schema.name.removeprefix("aten::").removesuffix("_")
    if name in _MOVING:
        return _NONE
    if name in _ELEMENTWISE:
        return _NONE if _is_of_one_dtype(tensors, result) else _UNKNOWN
    if name in _CONTIGUOUS:
        return _NONE if all(tensor.is_contiguous() for tensor in tensors) else _UNKNOWN
    if not is_modelled_processor():
        return _UNKNOWN
    if name in _PRODUCTS:
        return _NONE if all(map(_needs_no_copy, tensors[-2:])) else _UNKNOWN  # before them comes the addend
    if op is aten._scaled_dot_product_flash_attention_for_cpu.default:
        return _attention(_named(op, args, kwargs))
    if op is aten.convolution.default:
        return Workspace(_convolution(_named(op, args, kwargs), cast(torch.Tensor, result)), known=False)
    if op is aten.convolution_backward.default:
        return Workspace(_convolution_backward(_named(op, args, kwargs)), known=False)
    return _UNKNOWN


def _is_of_one_dtype(operands: Sequence[torch.Tensor], result: object) -> bool:
    """Whether no operand needs a dtype conversion; scalars take only a few bytes, and masks need none."""
    dtypes = {operand.dtype for operand in operands if operand.dim() > 0}
    dtypes.discard(torch.bool)
    if isinstance(result, torch.Tensor) and result.is_floating_point():
        dtypes.add(result.dtype)
    return len(dtypes) <= 1


def _needs_no_copy(matrix: torch.Tensor) -> bool:
    """Whether a matmul reads a matrix without a copy: it is float32, in row-major or column-major order."""
    return matrix.dtype is torch.float32 and (matrix.is_contiguous() or matrix.mT.is_contiguous())


def _attention(named: Mapping[str, object]) -> Workspace:
    """Return the workspace of attention: a block of scores, row sums and maxima, and outputs per thread."""
    query, key = cast(torch.Tensor, named["query"]), cast(torch.Tensor, named["key"])
    if query.dtype is not torch.float32:
        return _UNKNOWN  # in lower precision, the operands may be packed first
    length, width = query.shape[-2:]
    rows = min(length, 256 if length >= 768 else 64 if length >= 192 else 32)
    columns = min(key.shape[-2], 512)
    numbers = rows * (columns + 2 + width)
    return Workspace(torch.get_num_threads() * numbers * query.element_size(), known=True)


def _named(op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    names = [argument.name for argument in schema_arguments(op)]
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _convolution(named: Mapping[str, object], result: torch.Tensor) -> int:
    """Return the bytes besides the result: the copies of input and weight, or of the result."""
    if not _is_onednn(named):
        return 0
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    if not _is_reordered(source):
        return weight.nbytes
    return max(_input_copy(source) + weight.nbytes + _strided_copy(named, weight, result), result.nbytes)


def _convolution_backward(named: Mapping[str, object]) -> int:
    """Return the bytes besides both gradients: the copies of the operands, or of the weight's gradient."""
    if not _is_onednn(named):
        return 0
    gradient = cast(torch.Tensor, named["grad_output"])
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    to_input, to_weight, _ = cast("Sequence[bool]", named["output_mask"])
    if not _is_reordered(source):
        return weight.nbytes
    sizes = [0]
    if to_input:  # the weight's gradient is not allocated yet
        sizes.append(gradient.nbytes + (0 if to_weight else weight.nbytes))
    if to_weight:
        sizes += [gradient.nbytes + _input_copy(source), weight.nbytes]
    return max(sizes)


def _input_copy(source: torch.Tensor) -> int:
    return source.nbytes if source.shape[1] > _FEW_CHANNELS else 0


def _strided_copy(named: Mapping[str, object], weight: torch.Tensor, result: torch.Tensor) -> int:
    """Return the bytes of each thread's copy of the elements that a strided 1×1 convolution reads."""
    steps = cast("Sequence[int]", named["stride"])
    if named["transposed"] or set(weight.shape[2:]) != {1} or max(steps) == 1:
        return 0
    read = weight.shape[1] * math.prod(result.shape[2:]) * result.element_size()
    return torch.get_num_threads() * read


def _is_reordered(source: torch.Tensor) -> bool:
    """Whether oneDNN must reorder a tensor's layout; it reads channels-last tensors directly."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(source.dim())
    return last is None or not source.is_contiguous(memory_format=last)


def _is_onednn(named: Mapping[str, object]) -> bool:
    """Whether torch dispatches a convolution to oneDNN, which depends on sizes and the number of threads."""
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    if source.dim() != weight.dim():
        return False
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    bias = named.get("bias")
    sizes = {} if bias is not None else {"bias_sizes": named.get("bias_sizes")}
    backend = select_conv_backend(source, weight, bias=bias, **{name: named[name] for name in names}, **sizes)
    return str(backend).rpartition(".")[2] in ("Mkldnn", "MkldnnTranspose")
