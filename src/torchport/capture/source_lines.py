"""Gives each captured node the user's source line that called it.

`torch.export` records the frames named `forward` alone, and pays for a whole traceback at each
node. This mode looks for the innermost frame outside torch, which is both cheaper and nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import torch.fx.traceback
from torch.overrides import TorchFunctionMode

from torchport.capture.user_frames import describe_frame, torch_line, user_frame
from torchport.torch_private import peek_interpreter_stack


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
        line = describe_frame(user_frame(self._outermost)) or torch_line(self._outermost)
        if line:  # a graph that is captured again brings lines of its own
            torch.fx.traceback.current_meta["stack_trace"] = line
        return func(*args, **(kwargs or {}))
