"""Python numbers that record how they were computed from the sizes of tensors.

They are ints and floats, so the model's control flow is the same as with plain numbers. Comparisons
(`n > 7`) are recorded, since the graph is valid only for the same answers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, TypeAlias

from torch import fx

Number: TypeAlias = "int | float"


@dataclass(slots=True, eq=False)
class Origin:
    """How a number was computed.

    Args:
        target: a function, or the name of a tensor method.
        args: its arguments: tensors, tracked numbers, constants.
        node: the node that computes the number, once there is one.
    """

    target: Callable[..., object] | str
    args: tuple[object, ...]
    node: fx.Node | None = None


class Observer(Protocol):
    """Is notified of the comparisons that a model makes with tracked numbers."""

    active: bool

    def here(self) -> object:
        """Return the current place in the run, where a number is being computed."""

    def note_comparison(self, target: Callable[..., object], args: tuple[object, ...], answer: bool) -> None:
        """Record that the model evaluated `target(*args)`, with this answer."""


class _TrackedBase:
    """The common base of tracked numbers: an origin, and an observer of comparisons."""

    origin: Origin
    observer: Observer
    place: object

    def __new__(cls, value: Any, origin: Origin, observer: Observer) -> Any:
        """Make a number that equals `value`."""
        made: Any = super().__new__(cls, value)  # type: ignore[call-arg]  # that of int or float
        made.origin = origin
        made.observer = observer
        made.place = observer.here()
        return made

    def __bool__(self) -> bool:
        return _ask(operator.ne, self, 0)

    def __hash__(self) -> int:
        return hash(plain(self))

    def __reduce__(self) -> tuple[object, ...]:
        return type(plain(self)), (plain(self),)

    def __deepcopy__(self, memo: object) -> Any:
        return self


class TrackedInt(_TrackedBase, int):
    """An int with its origin."""

    def __pos__(self) -> int:
        return self

    def __round__(self, digits: SupportsIndex | None = None) -> int:
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__


class TrackedFloat(_TrackedBase, float):
    """A float with its origin."""

    def __floor__(self) -> int:
        return _rounded(math.floor, self)

    def __ceil__(self) -> int:
        return _rounded(math.ceil, self)

    def __trunc__(self) -> int:
        return _rounded(int, self)

    def __round__(self, digits: SupportsIndex | None = None) -> float:  # type: ignore[override]  # an int without digits
        if digits is None:
            return _rounded(round, self)
        return _compute(round, self, int(digits), plain=round(plain(self), digits))


Tracked = (TrackedInt, TrackedFloat)
TrackedNumber: TypeAlias = "TrackedInt | TrackedFloat"


class TrackedSize(tuple[int, ...]):
    """A tensor's shape as a tuple of tracked ints, with the methods of `torch.Size`."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        part = tuple.__getitem__(self, index)
        return TrackedSize(part) if isinstance(part, tuple) else part

    def __add__(self, other: Any) -> Any:
        return TrackedSize((*self, *other))

    def __radd__(self, other: Any) -> Any:
        return TrackedSize((*other, *self))

    def numel(self) -> int:
        """Return the number of elements of a tensor with this shape."""
        count = 1
        for size in self:
            count = size * count if isinstance(count, int) and count == 1 else count * size
        return count


def plain(number: Any) -> Any:
    """Return a number without its origin."""
    if isinstance(number, TrackedInt):
        return int.__int__(number)
    return float.__float__(number) if isinstance(number, TrackedFloat) else number


def track(value: Number, origin: Origin, observer: Observer) -> Number:
    """Return a tracked number with an origin; a plain number if the observer is not active."""
    kind: Callable[..., Number] = TrackedInt if isinstance(value, int) else TrackedFloat
    return kind(value, origin, observer) if observer.active else value


def _observer(args: tuple[object, ...]) -> Observer:
    return next(arg.observer for arg in args if isinstance(arg, Tracked))


def _compute(target: Callable[..., object], *args: object, plain: Any) -> Number:
    return track(plain, Origin(target, args), _observer(args))


def _rounded(target: Callable[[float], int], number: TrackedFloat) -> int:
    value = target(float.__float__(number))
    result = _compute(target, number, plain=value)
    assert isinstance(result, int)
    return result


def _ask(target: Callable[..., object], left: Any, right: Any) -> bool:
    answer = bool(target(plain(left), plain(right)))
    observer = _observer((left, right))
    if observer.active:
        observer.note_comparison(target, (left, right), answer)
    return answer


_ARITHMETIC = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _install(cls: type) -> None:
    """Add operators to a class of tracked numbers: results are tracked, and comparisons recorded."""
    for name in _ARITHMETIC:
        target: Callable[..., object] = getattr(operator, name)

        def compute(self: Number, other: object, target: Callable[..., object] = target) -> object:
            if not _is_number(other):
                return NotImplemented
            value = target(plain(self), plain(other))
            return _compute(target, self, other, plain=value)

        def reflected(self: Number, other: object, target: Callable[..., object] = target) -> object:
            if not _is_number(other):
                return NotImplemented
            value = target(plain(other), plain(self))
            return _compute(target, other, self, plain=value)

        setattr(cls, f"__{name}__", compute)
        setattr(cls, f"__r{name}__", reflected)
    for name in _COMPARISONS:
        comparison: Callable[..., object] = getattr(operator, name)

        def compare(self: Number, other: object, target: Callable[..., object] = comparison) -> object:
            return _ask(target, self, other) if _is_number(other) else NotImplemented

        setattr(cls, f"__{name}__", compare)

    def negated(self: Number) -> Number:
        return _compute(operator.neg, self, plain=-plain(self))

    def divided(self: Number, other: Any) -> object:
        return (self // other, self % other) if _is_number(other) else NotImplemented

    def absolute(self: Number) -> Number:
        return _compute(abs, self, plain=abs(plain(self)))

    for name, method in {"neg": negated, "divmod": divided, "abs": absolute}.items():
        setattr(cls, f"__{name}__", method)


_install(TrackedInt)
_install(TrackedFloat)
