"""Writes the unique modules, then the unique ops, of a model that a function loads."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from torchport.analysis.analyze_model import analyze
from torchport.analysis.unique_modules import ModelOrigin
from torchport.errors import AnalysisError, TorchportError, one_line
from torchport.records import (
    Analysis,
    ModuleTable,
    UniqueModule,
    UniqueOp,
    json_text,
    read_record,
    write_text,
)
from torchport.zoo.model_inputs import read_inputs


def extract_unique_modules(
    load_fn: Callable[[], nn.Module],
    get_sample_input: Callable[[], object],
    output_path: str | Path,
) -> list[UniqueModule]:
    """Write the unique modules of a model as JSON.

    Args:
        load_fn: returns the model; it is analyzed in evaluation mode.
        get_sample_input: returns its input: a tensor, a tuple of arguments, a dict of keyword arguments, or
            a tuple and a dict.
        output_path: the file to write.

    Returns:
        The unique modules.

    Raises:
        TorchportError: a function raises, `load_fn` does not return a model, the inputs do not fit, or the
            file cannot be written.

    Example:
        >>> extract_unique_modules(lambda: nn.ReLU(), lambda: torch.ones(2), "modules.json")[0].class_name
        'ReLU'
    """
    analysis = _analyze(load_fn, get_sample_input)
    write_text(json_text(analysis.modules), Path(output_path))
    return list(analysis.modules.modules)


def extract_pytorch_ops(
    modules_json_path: str | Path,
    load_fn: Callable[[], nn.Module],
    get_sample_input: Callable[[], object],
    output_path: str | Path,
) -> list[UniqueOp]:
    """Write the unique ops of a model as JSON, with the modules that call them.

    Args:
        modules_json_path: the file that `extract_unique_modules` wrote for the same model and input.
        load_fn, get_sample_input: as in `extract_unique_modules`.
        output_path: the file to write.

    Returns:
        The unique ops.

    Raises:
        TorchportError: as in `extract_unique_modules`; or the modules are those of another model.

    Example:
        >>> modules = extract_unique_modules(load_model, get_inputs, "modules.json")
        >>> ops = extract_pytorch_ops("modules.json", load_model, get_inputs, "ops.json")
    """
    path = Path(modules_json_path)
    known = read_record(path, ModuleTable)
    analysis = _analyze(load_fn, get_sample_input)
    _check_same(known, analysis.modules, path)
    metadata = replace(analysis.ops.metadata, source_modules_json=str(modules_json_path))
    table = replace(analysis.ops, metadata=metadata)
    write_text(json_text(table), Path(output_path))
    return list(table.ops)


def _analyze(load_fn: Callable[[], nn.Module], get_sample_input: Callable[[], object]) -> Analysis:
    origin = origin_of(load_fn)
    model = _call(load_fn, origin.location)
    if not isinstance(model, nn.Module):
        raise AnalysisError(
            f"it returned {'None' if model is None else 'a ' + type(model).__name__}, not a model",
            where=origin.location,
            remedy="return a torch.nn.Module",
        )
    place = origin_of(get_sample_input).location
    inputs = read_inputs(_call(get_sample_input, place), place)
    name = type(model).__name__
    return analyze(model.eval(), inputs.args, inputs.kwargs, name=name, origin=origin)


def _call(function: Callable[[], object], where: str) -> object:
    try:
        return function()
    except TorchportError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise AnalysisError(f"it raised {one_line(error)}", where=where) from error


def origin_of(function: Callable[..., object]) -> ModelOrigin:
    """Return where a function is defined, for the metadata: its file's relative path, and its name."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        file = None
    if file is None:
        return ModelOrigin(f"{getattr(function, '__module__', '?')}:{name}", name)
    relative = os.path.relpath(file)
    return ModelOrigin(f"{file if relative.startswith('..') else relative}:{name}", name)


def _check_same(known: ModuleTable, found: ModuleTable, path: Path) -> None:
    """Reject the modules of another model or input, since ids would refer to the wrong entries."""
    ours = [replace(module, like=None) for module in found.modules]
    theirs = [replace(module, like=None) for module in known.modules]
    for mine, given in zip(ours, theirs, strict=False):
        if mine.to_json() != given.to_json():
            raise AnalysisError(
                f"{given.id} is {given.class_name} at {given.module_path}, but the model has a different "
                f"{mine.class_name} at {mine.module_path}",
                where=str(path),
                remedy="extract the unique modules of this model, on this input, first",
            )
    if len(ours) != len(theirs):
        raise AnalysisError(
            f"it has {len(theirs)} modules, but the model has {len(ours)}",
            where=str(path),
            remedy="extract the unique modules of this model, on this input, first",
        )
