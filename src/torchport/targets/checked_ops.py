"""Ops that rely on their callers' checks, wrapped in those checks: a file's graph calls the wrappers instead.

torch's own Python functions check before they call these ops; a capture records only the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torchport.errors import RuntimeRefusal
from torchport.targets.permitted_ops import item_type
from torchport.torch_private import OpOverload, is_fake


class CheckedOp:
    """An op with a check of its arguments.

    Args:
        op: the op.
        check: takes the op's arguments as keywords, and returns what is wrong with them, or an empty string.
    """

    def __init__(self, op: OpOverload, check: Callable[..., str]) -> None:
        self.op = op
        self._check = check
        self._names = [argument.name for argument in op._schema.arguments]
        self._numbers = [each.name for each in op._schema.arguments if item_type(each) != "Tensor"]
        self.__name__ = self.__qualname__ = op._schema.name.rpartition("::")[2]  # where torch.fx looks

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Check the arguments, and call the op."""
        given = dict(zip(self._names, args, strict=False)) | kwargs
        # torch takes tensors for numbers too, with which the checks would compute something else.
        tensors = [name for name in self._numbers if _holds_tensor(given.get(name))]
        wrong = f"a tensor for {tensors[0]}" if tensors else self._check(**given)
        if wrong:
            raise RuntimeRefusal(
                f"{self.op} is called with {wrong}", remedy="check the inputs, or get the file again"
            )
        return self.op(*args, **kwargs)

    def __str__(self) -> str:
        return str(self.op)


class ZeroedOp(CheckedOp):
    """An op that allocates memory, filled with zeros: a file must not read what another tensor left there."""

    def __init__(self, op: OpOverload) -> None:
        super().__init__(op, lambda **_: "")

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the op, and fill its result."""
        made = super().__call__(*args, **kwargs)
        assert isinstance(made, torch.Tensor)
        return made.zero_()


def _holds_tensor(argument: object) -> bool:
    items = argument if isinstance(argument, (list, tuple)) else [argument]
    return any(isinstance(item, torch.Tensor) for item in items)


def _strided(
    self: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> str:
    """Permit only views of the tensor's own elements, not of adjacent memory."""
    start = 0 if storage_offset is None else storage_offset - self.storage_offset()
    if len(size) != len(stride) or min((start, *size, *stride)) < 0:
        return "inconsistent sizes and strides"
    if 0 in size:
        return ""
    end = start + _span(size, stride)
    return "" if end <= _span(self.shape, self.stride()) else "strides that go out of the tensor's bounds"


def _span(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements of memory a tensor spans."""
    if 0 in size:
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


def _fourier(
    self: torch.Tensor,
    dim: Sequence[int],
    normalization: int,
    onesided: bool = True,
    forward: bool = True,
    last_dim_size: int = 1,
) -> str:
    dims = {axis % self.dim() for axis in dim if self.dim() and -self.dim() <= axis < self.dim()}
    if len(dims) != len(dim) or not dim:
        return "dimensions that the tensor does not have"
    if normalization not in (0, 1, 2) or not 0 < last_dim_size < 2**31 or not self.numel():
        return "an invalid size or normalization"
    return ""


def _real_result(self: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> str:
    wrong = _fourier(self, dim, normalization, last_dim_size=last_dim_size)
    if wrong or self.shape[dim[-1]] >= last_dim_size // 2 + 1:
        return wrong
    return "fewer values than the size requires"


def _batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.0,
    eps: float = 0.0,
) -> str:
    if input.dim() < 2:
        return "an input without channels"
    given = [tensor for tensor in (weight, bias, running_mean, running_var) if tensor is not None]
    if any(tensor.shape != input.shape[1:2] for tensor in given):
        return "weights or statistics that do not match the input's channels"
    if not training and (running_mean is None or running_var is None):
        return "no statistics"
    return ""


def _batch_norm_no_stats(
    input: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = True,
    momentum: float = 0.0,
    eps: float = 0.0,
) -> str:
    return _batch_norm(input, weight, bias, training=True) or ("" if training else "no statistics")


def _pair_distances(self: torch.Tensor, p: float = 2.0) -> str:
    return (
        "" if self.dim() == 2 and self.is_contiguous() and p >= 0 else "something other than rows of points"
    )


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> str:
    if (weight.dim(), indices.dim(), offsets.dim()) != (2, 1, 1) or mode not in (0, 1, 2):
        return "tensors that are not a table, row indices and bag offsets, or an unknown mode"
    if per_sample_weights is not None and per_sample_weights.shape != indices.shape:
        return "weights that do not match the samples"
    if include_last_offset and not offsets.numel():
        return "no last offset"
    if is_fake(weight) or is_fake(indices) or is_fake(offsets):
        return ""  # during capture there are no values to check
    if indices.numel() and (indices.min() < 0 or indices.max() >= weight.shape[0]):
        return "rows that the table does not have"
    ends = torch.cat([offsets, offsets.new_tensor([indices.numel()])])
    starts_at_zero = not offsets.numel() or offsets[0] == 0
    return "" if starts_at_zero and (ends.diff() >= 0).all() else "bags that overlap or have no end"


def _quotient(self: torch.Tensor, other: torch.Tensor | float, rounding_mode: str | None = None) -> str:
    """Refuse the one division whose result has no integer: x86 processors raise a signal for it."""
    if rounding_mode != "trunc":
        return ""
    dtype = torch.result_type(self, other)
    operands = [torch.as_tensor(self), torch.as_tensor(other)]
    if dtype not in (torch.int32, torch.int64) or any(is_fake(operand) for operand in operands):
        return ""
    dividend, divisor = (operand.to(dtype) for operand in operands)
    overflows = ((dividend == torch.iinfo(dtype).min) & (divisor == -1)).any()
    return f"the least {str(dtype).removeprefix('torch.')}, divided by -1" if overflows else ""


_aten = torch.ops.aten
CHECKED: dict[str, CheckedOp] = {
    str(op): CheckedOp(op, check)
    for op, check in (
        (_aten.as_strided.default, _strided),
        (_aten._fft_c2c.default, _fourier),
        (_aten._fft_r2c.default, _fourier),
        (_aten._fft_c2r.default, _real_result),
        (_aten._native_batch_norm_legit_no_training.default, _batch_norm),
        (_aten._native_batch_norm_legit_functional.default, _batch_norm),
        (_aten._embedding_bag.default, _embedding_bag),
        (_aten._embedding_bag_forward_only.default, _embedding_bag),
        (_aten._pdist_forward.default, _pair_distances),
        (_aten.div.Tensor_mode, _quotient),
        (_aten.div.Scalar_mode, _quotient),
        (_aten.divide.Tensor_mode, _quotient),
        (_aten.divide.Scalar_mode, _quotient),
        (_aten._native_batch_norm_legit.no_stats, _batch_norm_no_stats),
    )
}
CHECKED |= {
    str(op): ZeroedOp(op)
    for op in (
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_permuted.default,
        _aten.new_empty.default,
    )
}
