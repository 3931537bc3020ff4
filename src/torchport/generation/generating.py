"""Detects generative models and their caches without importing transformers."""

from __future__ import annotations

import inspect
import sys
from types import FrameType


def can_generate(model: object) -> bool:
    """Whether a model is a transformers model that has `generate`.

    Example:
        >>> can_generate(torch.nn.Linear(2, 3))
        False
    """
    utils = sys.modules.get("transformers.generation.utils")
    if utils is None or not isinstance(model, utils.GenerationMixin):
        return False
    asked = getattr(model, "can_generate", None)
    return bool(asked()) if callable(asked) else True


def is_cache(value: object) -> bool:
    """Whether a value is a transformers KV cache, which a model keeps for its next call.

    Example:
        >>> is_cache([torch.ones(1)])
        False
    """
    utils = sys.modules.get("transformers.cache_utils")
    return utils is not None and isinstance(value, utils.Cache)


def is_generating() -> bool:
    """Whether a call comes from the loop of transformers' `generate`."""
    utils = sys.modules.get("transformers.generation.utils")
    if utils is None:
        return False
    loop = inspect.unwrap(utils.GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not loop:
        frame = frame.f_back
    return frame is not None
