"""Finds the user's code that is calling torch: its source line, and its names for values."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from types import CodeType, FrameType

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_CAPTURE = os.path.dirname(os.path.abspath(__file__))
_OURS = (_CAPTURE + os.sep, os.path.join(os.path.dirname(_CAPTURE), "torch_private") + os.sep)


@functools.lru_cache(maxsize=4096)
def _is_users(code: CodeType) -> bool:
    return not code.co_filename.startswith((_TORCH, *_OURS, "<"))


def user_frame(outermost: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame outside torch and torchport's capture code, or None.

    Args:
        outermost: the frame that called torchport; frames beyond it do not belong to the model.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not outermost:
        if _is_users(frame.f_code):
            return frame
        frame = frame.f_back
    return None


def describe_frame(frame: FrameType | None) -> str:
    """Return a frame's line in the format of tracebacks."""
    if frame is None:
        return ""
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def torch_line(outermost: FrameType) -> str:
    """Return the innermost line within `torch.nn`, in the format of tracebacks; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not outermost:
        file = frame.f_code.co_filename
        inside = file.startswith(_TORCH) and f"{os.sep}nn{os.sep}" in file
        if inside and not file.endswith("modules/module.py"):
            return describe_frame(frame).replace(_TORCH, f"torch{os.sep}")
        frame = frame.f_back
    return ""


def line_of(frame: FrameType | None) -> str:
    """Return a frame's line as `file.py:12 in forward`."""
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def user_line(error: BaseException) -> str:
    """Return `file.py:12 in forward` for the innermost user frame in an error's traceback."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_users(frame.f_code):
            found = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
    return found


def local_names(frame: FrameType | None) -> dict[int, str]:
    """Return the names of a frame's local variables, keyed by the ids of their values."""
    if frame is None:
        return {}
    return {
        id(value): name
        for name, value in frame.f_locals.items()
        if name.isidentifier() and not name.startswith("_") and name != "self"
    }


def attribute_name(value: object) -> str:
    """Return the name of the local variable or attribute that holds a value in the user's running code."""
    frame = user_frame()
    while frame is not None:
        if _is_users(frame.f_code):
            name = local_names(frame).get(id(value))
            if name:
                return name
            holder = frame.f_locals.get("self")
            for key, held in getattr(holder, "__dict__", {}).items():
                if held is value and key.isidentifier():
                    return str(key)
        frame = frame.f_back
    return ""
