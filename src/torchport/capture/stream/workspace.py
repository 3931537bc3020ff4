"""The memory that a kernel takes for itself and gives back: torch's allocator shows it, no tensor does.

Most kernels take none, and of attention it is known how much. What the convolutions take, which is most, is
an estimate: oneDNN computes in memory orders of its own, copies the input and the weight into them, and the
result out of one, and how far it pads these depends on the processor.
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

# A model on the meta device stands for one on the CPU.
_MODELLED_DEVICES = ("cpu", "meta")
# With so few channels, as an image has, oneDNN reads the input as it is.
_FEW_CHANNELS = 4

# Each element by itself: these take nothing, unless an operand must be converted to another dtype first.
_ELEMENTWISE = frozenset(
    """
    abs add sub mul div neg exp log sin cos tanh sigmoid relu silu hardswish hardsigmoid sqrt rsqrt pow
    reciprocal square maximum minimum clamp eq ne lt le gt ge where masked_fill logical_not logical_and
    logical_or bitwise_and bitwise_or bitwise_not tanh_backward sigmoid_backward threshold_backward
    silu_backward hardswish_backward hardsigmoid_backward
    """.split()
)
# These move elements, make tensors or only look at them another way.
_MOVING = frozenset(
    """
    _reshape_alias _to_copy _unsafe_view alias arange as_strided cat clone constant_pad_nd copy detach empty
    empty_like empty_strided expand fill full full_like gather lift_fresh lift_fresh_copy new_empty
    new_empty_strided new_full new_ones new_zeros ones ones_like permute scalar_tensor select slice split
    split_with_sizes squeeze t transpose unbind unsqueeze view zero zeros zeros_like
    """.split()
)
# These copy an input that is not contiguous; one that is, they read as it is.
_CONTIGUOUS = frozenset("gelu native_layer_norm embedding _softmax _log_softmax sum mean amax amin".split())
_PRODUCTS = frozenset("mm addmm bmm baddbmm".split())


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a kernel takes for itself.

    Args:
        bytes: how many, beyond its results, at most at a time.
        known: whether that is so, but for the few bytes of a number that a kernel wraps as a tensor;
            otherwise it is an estimate.
    """

    bytes: int
    known: bool


_NONE = Workspace(0, known=True)
_UNKNOWN = Workspace(0, known=False)


def is_modelled_processor() -> bool:
    """Whether products, attention and convolutions are computed by the libraries that are modelled here.

    Elsewhere torch computes them with other libraries (on ARM with Arm's, which copy what they multiply).
    """
    return platform.machine().lower() in ("x86_64", "amd64")


def workspace_of(
    op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], result: object
) -> Workspace:
    """Return what an op takes beyond its results."""
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
        return _NONE if all(map(_is_read_as_it_is, tensors[-2:])) else _UNKNOWN  # before them, what is added
    if op is aten._scaled_dot_product_flash_attention_for_cpu.default:
        return _attention(_named(op, args, kwargs))
    if op is aten.convolution.default:
        return Workspace(_convolution(_named(op, args, kwargs), cast(torch.Tensor, result)), known=False)
    if op is aten.convolution_backward.default:
        return Workspace(_convolution_backward(_named(op, args, kwargs)), known=False)
    return _UNKNOWN


def _is_of_one_dtype(operands: Sequence[torch.Tensor], result: object) -> bool:
    """Whether no operand is converted. Numbers are, in a few bytes; masks are read as they are."""
    dtypes = {operand.dtype for operand in operands if operand.dim() > 0}
    dtypes.discard(torch.bool)
    if isinstance(result, torch.Tensor) and result.is_floating_point():
        dtypes.add(result.dtype)
    return len(dtypes) <= 1


def _is_read_as_it_is(matrix: torch.Tensor) -> bool:
    """Whether a product needs no copy of a matrix: it is float32, in the order of its rows or columns."""
    return matrix.dtype is torch.float32 and (matrix.is_contiguous() or matrix.mT.is_contiguous())


def _attention(named: Mapping[str, object]) -> Workspace:
    """Each thread holds a block of scores, their sums and largest, and a block of the result."""
    query, key = cast(torch.Tensor, named["query"]), cast(torch.Tensor, named["key"])
    if query.dtype is not torch.float32:
        return _UNKNOWN  # of lower precision, it may be packed first
    length, width = query.shape[-2:]
    rows = min(length, 256 if length >= 768 else 64 if length >= 192 else 32)
    columns = min(key.shape[-2], 512)
    numbers = rows * (columns + 2 + width)
    return Workspace(torch.get_num_threads() * numbers * query.element_size(), known=True)


def _named(op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    names = [argument.name for argument in schema_arguments(op)]
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _convolution(named: Mapping[str, object], result: torch.Tensor) -> int:
    """Beside the result: the copies of input and weight, or the result in oneDNN's order."""
    if not _is_onednn(named):
        return 0
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    if not _is_reordered(source):
        return weight.nbytes
    return max(_input_copy(source) + weight.nbytes + _without_steps(named, weight, result), result.nbytes)


def _convolution_backward(named: Mapping[str, object]) -> int:
    """Beside both gradients: the copies that either is computed from, or the weight's in oneDNN's order."""
    if not _is_onednn(named):
        return 0
    gradient = cast(torch.Tensor, named["grad_output"])
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    to_input, to_weight, _ = cast("Sequence[bool]", named["output_mask"])
    if not _is_reordered(source):
        return weight.nbytes
    sizes = [0]
    if to_input:  # the weight's gradient is not there yet
        sizes.append(gradient.nbytes + (0 if to_weight else weight.nbytes))
    if to_weight:
        sizes += [gradient.nbytes + _input_copy(source), weight.nbytes]
    return max(sizes)


def _input_copy(source: torch.Tensor) -> int:
    return source.nbytes if source.shape[1] > _FEW_CHANNELS else 0


def _without_steps(named: Mapping[str, object], weight: torch.Tensor, result: torch.Tensor) -> int:
    """Each thread's copy of what a 1×1 convolution with a stride reads of one input."""
    steps = cast("Sequence[int]", named["stride"])
    if named["transposed"] or set(weight.shape[2:]) != {1} or max(steps) == 1:
        return 0
    read = weight.shape[1] * math.prod(result.shape[2:]) * result.element_size()
    return torch.get_num_threads() * read


def _is_reordered(source: torch.Tensor) -> bool:
    """Whether a tensor is in torch's own order; oneDNN takes one whose channels come last as it is."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(source.dim())
    return last is None or not source.is_contiguous(memory_format=last)


def _is_onednn(named: Mapping[str, object]) -> bool:
    """Whether torch hands a convolution to oneDNN; that depends on its sizes and on the number of threads."""
    source, weight = cast(torch.Tensor, named["input"]), cast(torch.Tensor, named["weight"])
    if source.dim() != weight.dim():
        return False
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    bias = named.get("bias")
    sizes = {} if bias is not None else {"bias_sizes": named.get("bias_sizes")}
    backend = select_conv_backend(source, weight, bias=bias, **{name: named[name] for name in names}, **sizes)
    return str(backend).rpartition(".")[2] in ("Mkldnn", "MkldnnTranspose")
