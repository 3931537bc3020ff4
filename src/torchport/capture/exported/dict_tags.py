"""Tells that dicts were not touched without looking into them.

CPython up to 3.13 gives a dict a new tag, unique in the process, whenever it changes. To read the tag of a
thousand dicts takes far less than to read their entries, most of which are not in the processor's caches.
Where tags are not found to work so, nothing is known, and the entries must be looked at.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections import OrderedDict
from collections.abc import Sequence

# After the reference count, the type and the number of entries.
_OFFSET = 3 * ctypes.sizeof(ctypes.c_void_p)


class DictTags:
    """The tags of some dicts, which it keeps alive.

    Args:
        dicts: the dicts; their values may be anything.
    """

    def __init__(self, dicts: Sequence[dict[object, object]]) -> None:
        self._dicts = list(dicts)
        self._tags = [_tag(held) for held in self._dicts] if tags_work() else []
        self._seen = self.read()

    def read(self) -> list[int]:
        """Return the tags as they are now."""
        return [tag.value for tag in self._tags]

    def untouched_since(self, now: list[int]) -> bool:
        """Whether it is sure, by tags that were just read, that no dict changed since `touch`."""
        return bool(now) and now == self._seen

    def touch(self, seen: list[int]) -> None:
        """Take the dicts for looked at: they are as they should be since these tags were read."""
        self._seen = seen


def _tag(held: dict[object, object]) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(id(held) + _OFFSET)


@functools.cache
def tags_work() -> bool:
    """Whether this Python's dicts have tags as expected: they are tried out on each way to change a dict."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return False
    return all(_notices(change) for change in (_set, _delete, _update, _clear, _set_attribute, _set_ordered))


class _Holder:
    def __init__(self) -> None:
        self.first = 1
        self.second = object()


def _notices(change: object) -> bool:
    """Whether each of many changes gives a new tag, and none comes without a change."""
    holder: _Holder = _Holder()
    kinds: dict[object, dict[object, object]] = {
        _set_attribute: vars(holder),  # type: ignore[dict-item]
        _set_ordered: OrderedDict(first=1),
    }
    held = kinds.get(change, {"first": 1, "second": 2})
    tag = _tag(held)
    seen = {tag.value}
    for count in range(1, 65):  # enough for CPython to specialise the code of the change
        if not (tag.value > 0 and tag.value in seen):
            return False
        change(holder if change is _set_attribute else held, object())  # type: ignore[operator]
        if tag.value in seen or len(seen) != count:
            return False
        seen.add(tag.value)
    return True


def _set(held: dict[str, object], value: object) -> None:
    held["first"] = value


def _set_ordered(held: OrderedDict[str, object], value: object) -> None:
    held["first"] = value


def _update(held: dict[str, object], value: object) -> None:
    held.update(first=value)


def _delete(held: dict[str, object], value: object) -> None:
    if held.pop("first", None) is None:
        held["first"] = value


def _clear(held: dict[str, object], value: object) -> None:
    if held:
        held.clear()
    else:
        held["first"] = value


def _set_attribute(holder: _Holder, value: object) -> None:
    holder.first = value  # type: ignore[assignment]
