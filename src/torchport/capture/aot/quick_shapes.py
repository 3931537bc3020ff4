"""Says at once what shapes the ops give that torch takes longest to say it of.

To learn the shape of a batch normalisation's result, torch runs what it is made of, op by op, on tensors
without values. In a model whose shapes are all different that is a tenth of the time that tracing takes. The
results of these ops are laid out as their inputs are; where that is not sure, torch is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

aten = torch.ops.aten


class QuickFakeTensorMode(FakeTensorMode):
    """A mode of fake tensors that knows the shapes of some ops' results itself."""

    def _dispatch_impl(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> FakeTensor | None:
        known = _KNOWN.get(func)
        found = known(self, *args) if known is not None and not kwargs else None
        return super()._dispatch_impl(func, types, args, kwargs) if found is None else found


def _normalised(mode: FakeTensorMode, source: object, *rest: object) -> tuple[FakeTensor, ...] | None:
    """The result, and on CPUs no statistics."""
    if not _plain(mode, (source, *rest[:4])) or not _fit(source, rest[:4]):
        return None
    return _like(mode, source), _empty(mode, (0,)), _empty(mode, (0,))


def _normalised_backward(
    mode: FakeTensorMode, gradient: Any, source: Any, *rest: object
) -> tuple[FakeTensor, ...] | None:
    weight, mean, variance, _, _, training, _, mask = rest
    if training or mask != [True, True, True]:
        return None
    if not _plain(mode, (gradient, source, weight, mean, variance)) or not _fit(source, rest[:3]):
        return None
    if gradient.shape != source.shape:
        return None
    return _like(mode, source), _like(mode, weight), _like(mode, weight)


def _first(mode: FakeTensorMode, first: Any, second: Any, *rest: object) -> FakeTensor | None:
    """The gradient of an activation: of the shape that the gradient and the activation's input have."""
    if not _plain(mode, (first, second)) or first.shape != second.shape:
        return None
    return _like(mode, first)


_KNOWN: dict[OpOverload, Callable[..., Any]] = {
    aten._native_batch_norm_legit_no_training.default: _normalised,
    aten.native_batch_norm_backward.default: _normalised_backward,
    aten.threshold_backward.default: _first,
    aten.gelu_backward.default: _first,
    aten.silu_backward.default: _first,
    aten.sigmoid_backward.default: _first,
}


def _plain(mode: FakeTensorMode, tensors: Sequence[object]) -> bool:
    """Whether these are tensors of the mode, float32, and lie in memory in the order of their dimensions."""
    return all(
        type(tensor) is FakeTensor
        and tensor.fake_mode is mode
        and tensor.dtype is torch.float32
        and tensor.fake_device.type == "cpu"
        and tensor.constant is None
        and tensor.numel() > 0
        and tensor.stride() == make_contiguous_strides_for(tensor.shape)  # of sizes of one too
        for tensor in tensors
    )


def _fit(source: Any, statistics: Sequence[Any]) -> bool:
    """Whether there is one number for each channel; torch says what is wrong where there is not."""
    return source.dim() > 1 and all(row.shape == source.shape[1:2] for row in statistics)


def _like(mode: FakeTensorMode, tensor: object) -> FakeTensor:
    assert isinstance(tensor, FakeTensor)
    return _empty(mode, tuple(tensor.shape))


def _empty(mode: FakeTensorMode, shape: tuple[int, ...]) -> FakeTensor:
    return FakeTensor(mode, torch.empty(shape, dtype=torch.float32, device="meta"), torch.device("cpu"))
