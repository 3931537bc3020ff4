"""Takes a snapshot of a model's Python state and finds what changed: numbers, lists, configurations, hooks.

A model's Python state determines what its forward does, but does not appear in a graph. So everything that is
reachable from the module through attributes and containers is recorded, and compared with later states.
"""

from __future__ import annotations

import operator
import types
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping

import numpy
import torch
from torch import nn

from torchport.structure import same_value

# Compared as a whole, without traversing their contents.
_LEAVES = (
    type(None), bool, int, float, complex, str, bytes, type, range, slice, torch.Tensor, torch.dtype,
    torch.device, torch.Size, torch.Generator, numpy.ndarray, numpy.generic, types.ModuleType,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType,
)  # fmt: skip
# A module that reaches more objects than this holds a data set, not a configuration.
_MOST = 1_000_000
_SHOWN = ("_parameters", "_buffers", "_modules")  # a module exposes their entries as attributes
# Attributes that every module has and no forward depends on; they are not traversed.
_INSIDE_A_MODULE = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")

Sequence = list[object] | deque[object]


class ModuleState:
    """A snapshot of everything that is reachable from a module.

    Args:
        module: the module.
    """

    def __init__(self, module: nn.Module) -> None:
        self._entries: list[tuple[str, dict[object, object], object, object]] = []
        self._sizes: list[tuple[str, dict[object, object], int]] = []
        self._sequences: list[tuple[str, Sequence, tuple[object, ...]]] = []
        self._sets: list[tuple[str, set[object], frozenset[object]]] = []
        self._walk(module)
        self._index()

    def unchanged(self) -> bool:
        """Whether nothing has changed; fast if so."""
        if any(self._empty) or list(map(len, self._sized)) != self._lengths:
            return False
        # Not by comparing dicts: 0.0 equals -0.0, 1 equals 1.0, and equal tensors may be distinct ones.
        if not all(map(operator.is_, map(dict.get, self._dicts, self._keys), self._values)):
            now = map(dict.get, self._dicts, self._keys)
            if not all(map(_is_same, now, self._values)):
                return False
        return all(_same_items(held, items) for _, held, items in self._sequences) and all(
            held == items for _, held, items in self._sets
        )

    def changed(self, names: Mapping[int, str] | None = None) -> list[str]:
        """Return the paths of everything that has changed, such as `settings.slope`.

        Args:
            names: the names of the module's tensors, by `id`. A tensor that replaced another one under the
                same name counts as unchanged, also in lists of the module's own tensors, as in `nn.LSTM`.
        """
        found = [
            path
            for path, held, key, value in self._entries
            if not _is_same(held.get(key), value) and not _has_same_names(held.get(key), value, names or {})
        ]
        found += [path for path, held, size in self._sizes if len(held) != size]
        found += [path for path, held, items in self._sequences if not _same_items(held, items)]
        found += [path for path, held, items in self._sets if held != items]
        return list(dict.fromkeys(found))

    def forget(self, paths: Collection[str]) -> None:
        """Stop tracking the given paths."""
        gone = set(paths)
        self._entries = [entry for entry in self._entries if entry[0] not in gone]
        self._sizes = [entry for entry in self._sizes if entry[0] not in gone]
        self._sequences = [entry for entry in self._sequences if entry[0] not in gone]
        self._sets = [entry for entry in self._sets if entry[0] not in gone]
        self._index()

    def _index(self) -> None:
        """Precompute the columns that `unchanged` compares, for speed: it runs on each call."""
        self._dicts = [held for _, held, _, _ in self._entries]
        self._keys = [key for _, _, key, _ in self._entries]
        self._values = [value for _, _, _, value in self._entries]
        self._sized = [held for _, held, length in self._sizes if length]
        self._lengths = [length for _, _, length in self._sizes if length]
        self._empty = [held for _, held, length in self._sizes if not length]  # most of a module's dicts are

    def _walk(self, root: object) -> None:
        seen: set[int] = set()
        stack: list[tuple[str, object]] = [("", root)]
        while stack and len(seen) < _MOST:
            path, value = stack.pop()
            if isinstance(value, _LEAVES) or id(value) in seen:
                continue
            seen.add(id(value))
            stack.extend(self._note(path, value))

    def _note(self, path: str, value: object) -> Iterator[tuple[str, object]]:
        """Record the contents of a value, and yield them with their paths."""
        if isinstance(value, dict):
            yield from self._note_dict(path, value, "[{!r}]")
        elif isinstance(value, (list, deque)):
            self._sequences.append((path, value, tuple(value)))
        elif isinstance(value, set):
            self._sets.append((path, value, frozenset(value)))
        if isinstance(value, (list, deque, tuple)):
            yield from ((f"{path}[{place}]", item) for place, item in enumerate(value))
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            form = ".{}" if path else "{}"
            is_module = isinstance(value, nn.Module)
            yield from self._note_dict(path, attributes, form, _INSIDE_A_MODULE if is_module else ())
            if is_module:
                for name in _SHOWN:
                    yield from self._note_dict(path, attributes[name], form)
                for name in _HOOKS:
                    yield from self._note_dict(path + form.format(name), attributes[name], "[{!r}]")

    def _note_dict(
        self, path: str, held: dict[object, object], form: str, skipped: Collection[object] = ()
    ) -> Iterator[tuple[str, object]]:
        self._sizes.append((path, held, len(held)))
        for key, value in held.items():
            if key not in skipped:
                place = path + form.format(key)
                self._entries.append((place, held, key, value))
                yield place, value


def _is_same(now: object, before: object) -> bool:
    """Whether a value is interchangeable with an earlier one: the same object, or an equal number or text."""
    if now is before:
        return True
    return isinstance(now, (int, float, complex, str, bytes)) and same_value(now, before)


def _has_same_names(now: object, before: object, names: Mapping[int, str]) -> bool:
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return all(_has_same_names(*pair, names) for pair in zip(now, before, strict=True))
    if isinstance(now, weakref.ref) and isinstance(before, weakref.ref):
        now, before = now(), before()
    return id(now) in names and names[id(now)] == names.get(id(before))


def _same_items(held: Sequence, items: tuple[object, ...]) -> bool:
    return len(held) == len(items) and all(map(_is_same, held, items))
