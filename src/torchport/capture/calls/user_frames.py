"""Finds the user's code that is calling torch: its line, and what it calls its values."""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType, FrameType

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@functools.lru_cache(maxsize=4096)
def _is_users(code: CodeType) -> bool:
    return not code.co_filename.startswith((_TORCH, _OURS, "<"))


def user_frame(outermost: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame outside torch and torchport, or None.

    Args:
        outermost: the frame that called torchport; those beyond it are none of the model's.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not outermost:
        if _is_users(frame.f_code):
            return frame
        frame = frame.f_back
    return None


def describe_frame(frame: FrameType | None) -> str:
    """Return a frame's line as tracebacks write it."""
    if frame is None:
        return ""
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def line_of(frame: FrameType | None) -> str:
    """Return a frame's line as `file.py:12 in forward`."""
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def local_names(frame: FrameType | None) -> dict[int, str]:
    """Return what a frame calls the values that it holds, by their ids."""
    if frame is None:
        return {}
    return {
        id(value): name
        for name, value in frame.f_locals.items()
        if name.isidentifier() and not name.startswith("_") and name != "self"
    }


def attribute_name(value: object) -> str:
    """Return what the user's code that is running calls a value, or the attribute that holds it."""
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
