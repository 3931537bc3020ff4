"""Calibration data: read once, item by item, cached on disk, split into calibration and evaluation items."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from torchport.errors import QuantizationError, TorchportError, one_line
from torchport.quantization.model_runs import NO_LABELS, call, stand_in
from torchport.quantization.options import QuantizationOptions
from torchport.structure import Flat, Structure, flatten_call

# Called with the current step, the number of items done, and the total if known.
Progress = Callable[[str, int, "int | None"], None]

_Key = tuple[tuple[tuple[int, ...], torch.dtype], ...]  # the shape and dtype of each tensor of an item

_WHERE = "the calibration data"
_FORM = "give a tensor, a tuple of positional inputs, or a dict of keyword inputs for each item"


def no_progress(what: str, done: int, total: int | None) -> None:
    """Ignore the progress."""


def call_of(item: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and keyword inputs that an item of calibration data represents."""
    if isinstance(item, Mapping):
        return (), {str(key): value for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    return (item,), {}


def item_of(
    model: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[object, ...] | dict[str, object]:
    """Return the item of calibration data that represents a call of a model."""
    if not kwargs:
        return args
    names = list(inspect.signature(model.forward).parameters)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def checked_items(model: nn.Module, items: Iterable[object], name: str) -> Iterator[object]:
    """Yield each item after checking that it has tensors, without NaN; the model is run on the first one.

    Raises:
        QuantizationError: an item cannot be read or has NaN, or the model raises on the first one.
    """
    for index, item in enumerate(_each(items)):
        _check_item(index, _flattened(index, item), None)
        if index == 0:
            try:
                call(stand_in(model), *call_of(item))
            except Exception as error:  # a model may raise anything
                raise QuantizationError(
                    f"the model raises on the first item of the calibration data: {one_line(error)}",
                    where=name,
                    remedy=NO_LABELS,
                ) from error
        yield item


def _flattened(index: int, item: object) -> Flat:
    try:
        return flatten_call(*call_of(item))
    except TorchportError as error:
        raise QuantizationError(
            f"item {index} cannot be read: {one_line(error)}", where=_WHERE, remedy=_FORM
        ) from error


class CalibrationData:
    """Inputs of a model, on disk.

    Iterating again would mix held-back items with the rest if the iterable shuffles, and an iterator yields
    its items only once. So each item is written to disk as it is read, and only one is in memory at a time.

    Args:
        items: the inputs.
        folder: where they are written; the caller removes it.
        options: how many items to use at most, and how many to hold back.
        progress: called for each item.
        calibrates: whether items are needed for calibration; if not, all are used for evaluation, and one is
            enough.
    """

    def __init__(
        self,
        items: Iterable[object],
        folder: Path,
        options: QuantizationOptions,
        progress: Progress,
        calibrates: bool = True,
    ) -> None:
        self.structure: Structure | None = None
        self._files: list[Path] = []
        self._keys: list[_Key] = []
        for index, item in enumerate(_each(items)):
            if index >= options.samples:
                break
            self._add(index, item, folder)
            progress("Reading", index + 1, None)
        if not calibrates:
            if not self._files:
                raise QuantizationError(
                    "it is empty", where=_WHERE, remedy="give at least one item, to define the model's inputs"
                )
            self.held_back, self.calibrating = list(range(len(self._files))), []
            return
        if len(self._files) < 2:
            raise QuantizationError(
                "it is empty" if not self._files else "it has a single item",
                where=_WHERE,
                remedy="give at least two items: some calibrate, others evaluate the result",
            )
        # Spread evenly: data are often sorted.
        count = min(max(1, round(len(self._files) * options.hold_back)), len(self._files) - 1)
        step = len(self._files) / count
        held_back = {int(step * place + step / 2) for place in range(count)}
        self.held_back = [index for index in range(len(self._files)) if index in held_back]
        self.calibrating = [index for index in range(len(self._files)) if index not in held_back]

    def load(self, index: int) -> list[torch.Tensor]:
        """Return the tensors of an item."""
        stored = load_file(self._files[index])
        return [stored[str(place)] for place in range(len(stored))]

    def call(self, index: int) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the positional and keyword inputs of an item."""
        assert self.structure is not None
        return self.structure.rebuild(self.load(index))  # type: ignore[return-value]  # of (args, kwargs)

    def like_first(self, indices: Sequence[int]) -> list[int]:
        """Return the items with the shapes and dtypes of the first one: a last batch is often smaller."""
        return [index for index in indices if self._keys[index] == self._keys[indices[0]]]

    def _add(self, index: int, item: object, folder: Path) -> None:
        flat = _flattened(index, item)
        _check_item(index, flat, self.structure)
        key = _key(flat)
        if self._keys and not _same_but_batch(key, self._keys[0]):
            raise QuantizationError(
                f"item {index} has different shapes or dtypes from the first one: {_shapes(key)}, "
                f"not {_shapes(self._keys[0])}",
                where=_WHERE,
                remedy="pad or crop the items; only the batch size may differ, also with dynamic_shapes",
            )
        self.structure = self.structure or flat.structure
        path = folder / f"{index}.safetensors"
        save_file(
            {str(place): leaf.detach().cpu().contiguous().clone() for place, leaf in enumerate(flat.leaves)},
            path,
        )
        self._files.append(path)
        self._keys.append(key)


def _key(flat: Flat) -> _Key:
    return tuple((tuple(leaf.shape), leaf.dtype) for leaf in flat.leaves)


def _same_but_batch(one: _Key, other: _Key) -> bool:
    return [(shape[1:], dtype) for shape, dtype in one] == [(shape[1:], dtype) for shape, dtype in other]


def _shapes(key: _Key) -> str:
    return ", ".join(str(list(shape)) for shape, _ in key)


def _each(items: Iterable[object]) -> Iterator[object]:
    if isinstance(items, (torch.Tensor, Mapping, str)) or not hasattr(items, "__iter__"):
        raise QuantizationError(
            f"it is a {type(items).__name__}, not an iterable of inputs",
            where=_WHERE,
            remedy="give a list of inputs, a DataLoader, or a generator",
        )
    iterator = iter(items)
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except Exception as error:  # a user's own code may raise anything
            raise QuantizationError(
                f"it raises {one_line(error)}", where=_WHERE, remedy="iterate over it without torchport first"
            ) from error
        yield item


def _check_item(index: int, flat: Flat, structure: Structure | None) -> None:
    if not flat.leaves:
        raise QuantizationError(f"item {index} has no tensor", where=_WHERE, remedy=_FORM)
    if not any(leaf.numel() for leaf in flat.leaves):
        raise QuantizationError(
            f"item {index} has no elements: {_shapes(_key(flat))}",
            where=_WHERE,
            remedy="leave such items out",
        )
    for path, leaf in zip(flat.structure.paths, flat.leaves, strict=True):
        if leaf.is_floating_point() and bool(leaf.isnan().any()):
            raise QuantizationError(
                f"item {index} has NaN, in the input {path}", where=_WHERE, remedy="leave such items out"
            )
    if structure is not None and structure != flat.structure:
        raise QuantizationError(
            f"item {index} has different inputs from the first one", where=_WHERE, remedy=_FORM
        )
