"""Gives each captured node the user's source line that called it.

`torch.export` records the frames named `forward` alone, and pays for a whole traceback at each
node. This mode looks for the innermost frame outside torch, which is both cheaper and nearer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import torch
import torch.fx.traceback
from torch.overrides import TorchFunctionMode

from torchport.torch_private import peek_interpreter_stack

_TORCH = os.path.dirname(torch.__file__) + os.sep
_CAPTURE = os.path.dirname(os.path.abspath(__file__))
_OURS = (_CAPTURE + os.sep, os.path.join(os.path.dirname(_CAPTURE), "torch_private.py"))


class SourceLines(TorchFunctionMode):
    """While active, nodes that torch traces get the line of the innermost frame of the user's.

    Args:
        outermost: the frame at which the user's code ends; frames beyond it called torchport.
    """

    def __init__(self, outermost: FrameType) -> None:
        super().__init__()
        self._outermost = outermost
        self.saw_transforms = False  # whether something was called within functorch's vmap, grad and the like

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if peek_interpreter_stack() is not None:
            self.saw_transforms = True
        line = self._line()
        if line:  # a graph that is captured again brings lines of its own
            torch.fx.traceback.current_meta["stack_trace"] = line
        return func(*args, **(kwargs or {}))

    def _line(self) -> str:
        frame: FrameType | None = sys._getframe(2)
        nearest = ""
        while frame is not None and frame is not self._outermost:
            file = frame.f_code.co_filename
            if not file.startswith(_TORCH):
                if not file.startswith(_OURS) and not file.startswith("<"):
                    return _describe(file, frame)
            elif not nearest and f"{os.sep}nn{os.sep}" in file and not file.endswith("modules/module.py"):
                nearest = _describe(os.path.join("torch", file[len(_TORCH) :]), frame)
            frame = frame.f_back
        return nearest


def _describe(file: str, frame: FrameType) -> str:
    return f'File "{file}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def user_line(error: BaseException) -> str:
    """Return `file.py:12 in forward` for the innermost frame of the user's in an error's traceback."""
    trace = error.__traceback__
    found = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_TORCH, *_OURS, "<")):
            found = f"{file}:{trace.tb_lineno} in {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    return found
