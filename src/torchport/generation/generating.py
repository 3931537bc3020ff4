"""Tells which models generate, without importing the library that they would come from."""

from __future__ import annotations

import sys


def can_generate(model: object) -> bool:
    """Whether a model is one of transformers' that generate text.

    Example:
        >>> can_generate(torch.nn.Linear(2, 3))
        False
    """
    utils = sys.modules.get("transformers.generation.utils")
    if utils is None or not isinstance(model, utils.GenerationMixin):
        return False
    asked = getattr(model, "can_generate", None)
    return bool(asked()) if callable(asked) else True
