"""Calls torch functions on real tensors, or on fake tensors with a cache of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchport.capture.calls.tracked_numbers import Tracked, plain
from torchport.structure import tensors_within
from torchport.torch_private import FakeTensor, FakeTensorMode


def unwrap(value: object) -> object:
    """Return a value with tracked numbers replaced by plain ones."""
    if isinstance(value, Tracked):
        return plain(value)
    if isinstance(value, (list, tuple)):
        if not any(isinstance(item, (*Tracked, list, tuple, slice)) for item in value):
            return value
        return alike(value, [unwrap(item) for item in value])
    if isinstance(value, slice):
        return slice(unwrap(value.start), unwrap(value.stop), unwrap(value.step))
    if isinstance(value, dict):
        return {key: unwrap(item) for key, item in value.items()}
    return value


def alike(value: Sequence[object], items: list[object]) -> object:
    """Return a container of the same class with the given items."""
    make: Any = type(value)
    return make(*items) if hasattr(value, "_fields") else make(items)


class RealCalls:
    """Calls functions on real tensors."""

    def convert(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor to use in place of `tensor` in the run."""
        return tensor.detach().clone()

    def run(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Call a function."""
        result = function(
            *[unwrap(arg) for arg in args], **{key: unwrap(value) for key, value in kwargs.items()}
        )
        if isinstance(result, torch.Tensor) and not is_in_place(function, kwargs):
            return self.apart(result, args)
        return result

    def apart(self, result: torch.Tensor, args: Sequence[object]) -> torch.Tensor:
        """Return a result as a distinct object, even if it is one of the arguments."""
        return torch.ops.aten.alias(result) if any(result is arg for arg in args) else result


class FakeCalls:
    """Calls functions on fake tensors.

    Results are cached: models repeat their blocks, fake tensors are slow, and a call whose arguments have the
    same shapes, dtypes and values as an earlier call's has results of the same shapes and dtypes.
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._known: dict[object, object] = {}

    def convert(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake tensor to use in place of `tensor` in the run."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._fakes.get(id(tensor))
        if known is None:
            known = self._fakes[id(tensor)] = (tensor, self.mode.from_tensor(tensor.detach()))
        return known[1]

    def run(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Call a function."""
        tensors: list[torch.Tensor] = []
        in_place = is_in_place(function, kwargs)
        key = None
        if not in_place:
            key = self._key(function, args, kwargs, tensors)
        known = self._known.get(key) if key is not None else None
        if known is not None:
            return self._make(known, tensors)
        with self.mode:
            result = function(
                *[self._prepare(arg) for arg in args],
                **{key: self._prepare(value) for key, value in kwargs.items()},
            )
        if key is not None:
            described = _describe(result, [self.convert(tensor) for tensor in tensors])
            if described is not None:
                self._known[key] = described
        if isinstance(result, torch.Tensor) and not in_place:
            return self.apart(result, [self.convert(tensor) for tensor in tensors])
        return result

    def apart(self, result: torch.Tensor, args: Sequence[object]) -> torch.Tensor:
        """Return a result as a distinct object, even if it is one of the arguments.

        `x.float()` returns `x` itself if it is float already, but not for inputs of other dtypes.
        """
        if not any(result is arg for arg in args):
            return result
        described = _describe(result, [])
        made = None if described is None else self._make(described, [])
        return made if isinstance(made, torch.Tensor) else result

    def _prepare(self, value: object) -> object:
        if isinstance(value, torch.Tensor):
            return self.convert(value)
        if isinstance(value, (list, tuple)):
            return alike(value, [self._prepare(item) for item in value])
        if isinstance(value, dict):
            return {key: self._prepare(item) for key, item in value.items()}
        if isinstance(value, slice):
            return unwrap(value)
        return plain(value) if isinstance(value, Tracked) else value

    def _key(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        tensors: list[torch.Tensor],
    ) -> object:
        """Return what the result's shapes and dtypes depend on; None if this is unknown."""
        parts: list[object] = [function, torch.get_default_dtype(), autocast_state()]
        try:
            for arg in args:
                _add_to_key(arg, parts, tensors)
            for name, value in kwargs.items():
                parts.append(name)
                _add_to_key(value, parts, tensors)
            key = tuple(parts)
            hash(key)
        except TypeError:
            return None
        return key

    def _make(self, described: object, tensors: list[torch.Tensor]) -> object:
        if isinstance(described, int):
            given = self.convert(tensors[described])
            return self.apart(given, [given])
        assert isinstance(described, tuple)
        head, rest = described
        if isinstance(head, type):
            return head([self._make(item, tensors) for item in rest])
        shape, stride, dtype = head
        return FakeTensor(self.mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), rest)


def is_in_place(function: Callable[..., object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call modifies its arguments: `add_`, `__setitem__`, `out=`, `inplace=True`."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") or "out" in kwargs or bool(kwargs.get("inplace"))


def has_tensor(value: object) -> bool:
    """Whether a value is or contains a tensor."""
    return next(tensors_within(value), None) is not None


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """Return the devices for which autocast is on, each with its dtype."""
    devices = filter(torch.is_autocast_enabled, ("cpu", "cuda"))
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices)


def _add_to_key(value: object, parts: list[object], tensors: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_nested:
            raise TypeError("not a plain tensor")
        tensors.append(value)
        parts += (value.shape, value.stride(), value.storage_offset(), value.dtype, value.device)
    elif isinstance(value, (list, tuple)):
        parts += (type(value), len(value))
        for item in value:
            _add_to_key(item, parts, tensors)
    elif isinstance(value, slice):
        parts += (slice, *map(plain, (value.start, value.stop, value.step)))
    elif isinstance(value, Tracked):
        parts += (type(plain(value)), plain(value))
    else:
        parts += (type(value), value)  # with the type: 1 equals 1.0, but promotes differently


def _describe(result: object, tensors: list[torch.Tensor]) -> object:
    """Return a description from which an equivalent result can be made; None if that is not possible."""
    for index, tensor in enumerate(tensors):
        if result is tensor:
            return index
    if type(result) is FakeTensor:
        if result.layout is not torch.strided or result.storage_offset() or result.constant is not None:
            return None
        return (result.shape, result.stride(), result.dtype), result.device
    if isinstance(result, (tuple, list)) and result:
        items = [_describe(item, tensors) for item in result]
        return None if any(item is None for item in items) else (type(result), items)
    return None
