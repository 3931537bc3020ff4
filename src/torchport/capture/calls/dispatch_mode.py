"""Records the ops that bypass torch functions, one ATen op at a time: those of `vmap` and scripted code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchport.capture.calls.fake_calls import has_tensor
from torchport.capture.calls.function_kinds import Described, Kind
from torchport.capture.calls.recorder import Recorder
from torchport.torch_private import TorchDispatchMode


class OpMode(TorchDispatchMode):
    """While active, records ops that are called outside recorded functions."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        recorder = self._recorder
        if not recorder.active or recorder.inside_leaf or recorder.inside_function:
            return func(*args, **named)
        with recorder.as_one():
            result = recorder.calls.run(func, args, named)
            if has_tensor(result):
                recorder.record(Described(Kind.COMPUTE, func, str(func)), args, named, result)
        return result
