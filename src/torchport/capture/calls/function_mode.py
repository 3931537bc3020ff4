"""Passes every call of a torch function to the recorder, with torch's own function mode and no patching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.overrides import TorchFunctionMode

from torchport.capture.calls.fake_calls import FakeCalls, RealCalls, has_tensor
from torchport.capture.calls.function_kinds import Described, Kind, describe
from torchport.capture.calls.recorder import Recorder
from torchport.capture.calls.tensor_nodes import LostTensor
from torchport.capture.calls.tracked_numbers import Tracked
from torchport.capture.calls.value_reads import ValueReads
from torchport.capture.user_frames import line_of, user_frame
from torchport.errors import CaptureError
from torchport.torch_private import functorch_transform, is_functorch_wrapped_tensor

# Longer lists of numbers are stored as weights rather than in the generated code.
INLINE_LIMIT = 32


class CallMode(TorchFunctionMode):
    """While active, runs this thread's calls with `calls` and records them with `recorder`."""

    def __init__(
        self, recorder: Recorder, calls: FakeCalls | RealCalls, reads: ValueReads, *, sees_ops: bool
    ) -> None:
        super().__init__()
        self._sees_ops = sees_ops
        self._recorder = recorder
        self._calls = calls
        self._reads = reads

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        if self._recorder.inside_leaf or not self._recorder.active:
            return self._calls.run(func, args, named)
        if any(isinstance(arg, torch.Tensor) and is_functorch_wrapped_tensor(arg) for arg in args):
            self._check_transform()
            if not self._sees_ops:
                raise LostTensor
            return func(*args, **named)  # the ops that it decomposes into are recorded
        with self._recorder.as_one():
            return self._handle(func, args, named)

    def _check_transform(self) -> None:
        """Refuse derivatives: vmap is written as the ops that it runs, but a derivative runs autograd's."""
        kind = functorch_transform()
        if kind != "Vmap":
            raise CaptureError(
                f"the model differentiates with torch.func ({kind.lower()}), which cannot be written as code",
                where=line_of(user_frame(self._recorder.outermost)),
                remedy="write out the derivative, or use torchport.compile, which supports torch.func",
            )

    def _handle(
        self, func: Callable[..., object], args: tuple[object, ...], named: dict[str, object]
    ) -> object:
        described = describe(func)
        if described.kind is Kind.COMPUTE:
            return self._compute(func, described, args, named)
        if described.kind is Kind.WRITE:
            result = self._calls.run(func, args, named)
            self._recorder.record(described, args, named, result)
            return result
        if described.kind is Kind.VALUE:
            return self._reads.read(func, described, args, named)
        if described.kind is Kind.GRAD_MODE:
            return func(*args, **named)
        return self._metadata(func, described, args, named)

    def _compute(
        self,
        func: Callable[..., object],
        described: Described,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        if _is_factory(func) and _is_large_data(args[0] if args else kwargs.get("data")):
            return func(*args, **kwargs)  # a constant, like one created before the run
        result = self._calls.run(func, args, kwargs)
        if has_tensor(result):
            self._recorder.record(described, args, kwargs, result)
        return result

    def _metadata(
        self,
        func: Callable[..., object],
        described: Described,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Return a tensor's shape, dtype or device, and record which tensor it comes from."""
        value = func(*args, **kwargs)
        tensor = args[0]
        if not isinstance(tensor, torch.Tensor) or not self._recorder.tensors.is_known(tensor):
            return value  # the metadata of weights is constant
        if described.kind is Kind.DTYPE:
            self._recorder.note_dtype(tensor)
        elif described.kind is Kind.DEVICE:
            return self._recorder.device_of(tensor)
        elif isinstance(value, torch.Size):
            return self._recorder.sizes(tensor)
        elif isinstance(value, int) and described.kind is Kind.SIZES:
            return self._recorder.number(value, described.name, tensor, *args[1:], *kwargs.values())
        return value


def _is_factory(func: object) -> bool:
    return func is torch.tensor or func is torch.as_tensor


def _is_large_data(value: object) -> bool:
    if isinstance(value, (torch.Tensor, *Tracked)):
        return False
    if isinstance(value, (list, tuple)):
        return not _has_tracked(value) and _count(value) > INLINE_LIMIT
    return hasattr(value, "__array__") and not isinstance(value, (int, float))


def _has_tracked(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_tracked(item) for item in value)
    return isinstance(value, (torch.Tensor, *Tracked))


def _count(value: object) -> int:
    return sum(_count(item) for item in value) if isinstance(value, (list, tuple)) else 1
