"""Annotates each captured node with the user's source line that called it.

`torch.export` records only frames named `forward`, and computes a whole traceback for each node.
This mode finds the innermost frame outside torch, which is both cheaper and more precise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import torch.compiler
import torch.fx.traceback
from torch.overrides import TorchFunctionMode

from torchport.capture.user_frames import describe_frame, torch_line, user_frame
from torchport.torch_private import peek_interpreter_stack


class SourceLines(TorchFunctionMode):
    """While active, annotates the nodes that torch traces with the line of the innermost user frame.

    Args:
        outermost: the frame that bounds the user's code; frames beyond it called torchport.
    """

    def __init__(self, outermost: FrameType) -> None:
        super().__init__()
        self._outermost = outermost
        self.saw_transforms = False  # whether anything was called inside a functorch transform, such as vmap
        self.saw_seeding = False  # whether anything was called after random numbers were seeded
        self._seed = torch.initial_seed()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if torch.compiler.is_dynamo_compiling():  # as for torch.cond's branches; Dynamo cannot read frames
            return func(*args, **(kwargs or {}))
        if peek_interpreter_stack() is not None:
            self.saw_transforms = True
        self.saw_seeding |= torch.initial_seed() != self._seed
        line = describe_frame(user_frame(self._outermost)) or torch_line(self._outermost)
        if line:  # a graph that is captured again comes with its own lines
            torch.fx.traceback.current_meta["stack_trace"] = line
        return func(*args, **(kwargs or {}))
