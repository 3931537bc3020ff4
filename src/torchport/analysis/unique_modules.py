"""Turns the calls of a model's modules into its unique modules: one per class, shapes and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from torch import nn

from torchport.analysis.module_parameters import ParameterReader
from torchport.capture import ModuleCall, OpStream
from torchport.records import (
    ROOT,
    ModuleMetadata,
    ModuleTable,
    TensorSpec,
    UniqueModule,
    parent_of,
    shape_text,
)


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """Where a model comes from, for the metadata.

    Args:
        location: the file and the function that made it, such as `my_model.py:load_model`.
        function: the function's name alone.
    """

    location: str = ""
    function: str = ""


@dataclass(slots=True)
class _Entry:
    """An entry under construction."""

    module: nn.Module
    path: str
    parameters: dict[str, object]
    inputs: tuple[tuple[str, TensorSpec], ...]
    outputs: tuple[TensorSpec, ...]
    occurrences: dict[str, None] = field(default_factory=dict)
    calls: int = 0


class UniqueModules:
    """The unique modules of one run.

    Args:
        stream: the run.
        origin: where the model comes from.
    """

    def __init__(self, stream: OpStream, origin: ModelOrigin) -> None:
        self._stream = stream
        self._origin = origin
        self._entries: dict[str, _Entry] = {}
        self._key_of_call: dict[int, str] = {}
        self._key_of_path: dict[str, str] = {}
        reader = ParameterReader()
        calls = _calls_by_path(stream)
        places = list(stream.module.named_modules(remove_duplicate=False))
        called = {id(module) for path, module in places if calls.get(path)}
        parameters: dict[int, dict[str, object]] = {}
        elsewhere = []
        for path, module in places:
            if id(module) not in parameters:
                parameters[id(module)] = reader.read(module)
            if not calls.get(path) and id(module) in called:
                elsewhere.append((path, module))  # a shared module, called through another path
                continue
            for call in calls.get(path) or [ModuleCall(path, module, ())]:
                self._add(call, parameters[id(module)], counted=bool(calls.get(path)))
        for path, module in elsewhere:
            for key, entry in self._entries.items():
                if entry.module is module:
                    entry.occurrences[path or ROOT] = None
                    self._key_of_path.setdefault(path, key)
        self._ids = {key: f"mod_{number:03d}" for number, key in enumerate(self._entries)}
        self._totals = (len({id(module) for _, module in places}), len(places))

    def _add(self, call: ModuleCall, parameters: dict[str, object], *, counted: bool) -> None:
        kind = type(call.module)
        signature = [
            f"{kind.__module__}.{kind.__qualname__}",
            [(str(spec.shape), spec.dtype) for _, spec in call.inputs],
            [(str(spec.shape), spec.dtype) for spec in call.outputs],
            parameters,
        ]
        key = json.dumps(signature, sort_keys=True, default=str)
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(call.module, call.path, parameters, call.inputs, call.outputs)
            self._entries[key] = entry
        entry.occurrences[call.path or ROOT] = None
        entry.calls += counted
        self._key_of_call[id(call)] = key
        self._key_of_path.setdefault(call.path, key)

    def id_of(self, call: ModuleCall | None, path: str) -> str:
        """Return the id of a call's entry, or else that of the path's first call; empty if there is none."""
        key = self._key_of_call.get(id(call)) if call is not None else None
        key = key or self._key_of_path.get(path)
        return self._ids[key] if key is not None else ""

    def table(self) -> ModuleTable:
        """Return the entries as a record."""
        modules = tuple(self._records())
        total, paths = self._totals
        metadata = ModuleMetadata(
            load_fn_location=self._origin.location,
            load_fn_name=self._origin.function,
            model_class=type(self._stream.module).__name__,
            total_modules=total,
            unique_modules=len(modules),
            timestamp=datetime.now().isoformat(timespec="seconds"),
            module_paths=paths,
            values=self._stream.values,
            note=self._stream.note,
        )
        return ModuleTable(metadata, modules)

    def _records(self) -> Iterator[UniqueModule]:
        first: dict[str, str] = {}
        for key, entry in self._entries.items():
            path = entry.path or ROOT
            kind = type(entry.module)
            alike, numbered = _without_its_number(key, entry)
            known = first.setdefault(alike, self._ids[key])
            yield UniqueModule(
                id=self._ids[key],
                class_name=kind.__name__,
                module_path=path,
                parent=parent_of(path),
                input_shapes=tuple(shape_text(spec.shape) for _, spec in entry.inputs),
                output_shapes=tuple(shape_text(spec.shape) for spec in entry.outputs),
                input_dtypes=tuple(spec.dtype for _, spec in entry.inputs),
                output_dtypes=tuple(spec.dtype for spec in entry.outputs),
                parameters=entry.parameters,
                occurrences=tuple(entry.occurrences),
                input_names=tuple(name for name, _ in entry.inputs),
                class_path=f"{kind.__module__}.{kind.__qualname__}",
                calls=entry.calls,
                like=known if numbered and known != self._ids[key] else None,
            )


def _calls_by_path(stream: OpStream) -> dict[str, list[ModuleCall]]:
    calls: dict[str, list[ModuleCall]] = {}
    for call in stream.module_calls:
        calls.setdefault(call.path, []).append(call)
    return calls


def _without_its_number(key: str, entry: _Entry) -> tuple[str, bool]:
    """Return an entry's key without parameters that equal an index in its path, and whether it has any."""
    numbers = {int(part) for part in entry.path.split(".") if part.isdecimal()}
    places = [name for name, value in entry.parameters.items() if type(value) is int and value in numbers]
    if not places:
        return key, False
    signature = json.loads(key)
    for name in places:
        signature[-1][name] = None
    return json.dumps(signature, sort_keys=True), True
