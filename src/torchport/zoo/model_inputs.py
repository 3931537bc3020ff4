"""Normalizes the inputs that a user's function returned to args and kwargs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from torchport.errors import ZooError


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """The inputs of one call.

    Args:
        args: the positional arguments.
        kwargs: the keyword arguments.
    """

    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


def read_inputs(value: object, where: str) -> ModelInputs:
    """Return `value` as the inputs of one call.

    Args:
        value: a tensor (the only argument), a tuple or list (the arguments), a mapping (the keyword
            arguments), or a pair of a tuple and a dict (both).
        where: the function that returned the value, for the message.

    Returns:
        The inputs.

    Raises:
        ZooError: the value is none of these.

    Example:
        >>> read_inputs({"input_ids": 1}, "inputs.py::make").kwargs
        {'input_ids': 1}
    """
    if isinstance(value, Tensor):
        return ModelInputs((value,))
    if isinstance(value, Mapping):
        return ModelInputs((), _keywords(value, where))
    if isinstance(value, tuple) and len(value) == 2:
        args, kwargs = value
        if isinstance(args, tuple) and isinstance(kwargs, dict):
            return ModelInputs(args, _keywords(kwargs, where))
    if isinstance(value, (tuple, list)):
        return ModelInputs(tuple(value))
    raise ZooError(
        f"the inputs are of type {type(value).__name__}",
        where=where,
        remedy="return a tensor, a tuple of arguments, a dict of keyword arguments, or (tuple, dict)",
    )


def _keywords(value: Mapping[object, object], where: str) -> dict[str, object]:
    keywords = {key: item for key, item in value.items() if isinstance(key, str)}
    if len(keywords) != len(value):
        raise ZooError(
            "the inputs are a dict whose keys are not all strings",
            where=where,
            remedy="use the names of the model's arguments as keys",
        )
    return keywords
