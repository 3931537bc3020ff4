"""The memory that a kernel takes for itself and gives back: torch's allocator shows it, no tensor does.

Of the CPU's kernels, the convolutions take enough to matter. oneDNN computes in memory orders of its own: it
copies the input and the weight into them, and the result out of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch._ops import OpOverload

from torchport.capture.stream.op_call import schema_arguments

# With so few channels, as an image has, oneDNN reads the input as it is.
_FEW_CHANNELS = 4


def workspace_of(op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], result: object) -> int:
    """Return how many bytes an op takes beyond its results, at most at a time; 0 where nothing is known."""
    if op is torch.ops.aten.convolution.default:
        return _convolution(_named(op, args, kwargs), cast(torch.Tensor, result))
    if op is torch.ops.aten.convolution_backward.default:
        return _convolution_backward(_named(op, args, kwargs))
    return 0


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
    if source.device.type != "cpu" or source.dim() != weight.dim():
        return False
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    bias = named.get("bias")
    sizes = {} if bias is not None else {"bias_sizes": named.get("bias_sizes")}
    backend = torch._C._select_conv_backend(
        source, weight, bias=bias, **{name: named[name] for name in names}, **sizes
    )
    return str(backend).rpartition(".")[2] in ("Mkldnn", "MkldnnTranspose")
