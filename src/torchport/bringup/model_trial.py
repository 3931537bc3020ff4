"""Compiles a model and compares its results with the original's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from torchport import targets
from torchport.bringup.isolated_runs import RunOutcome, copy_inputs, run_isolated
from torchport.capture import buffers_kept
from torchport.compiler import CompiledModel, compile
from torchport.compiler.speed_trial import noting_time
from torchport.errors import SurveyError, one_line
from torchport.packaging.write_file import PLAIN, FileContents, check_file_name, write_model
from torchport.records import DEFAULT_TARGET, Accuracy, BringUp, Comparison
from torchport.structure import tensors_in
from torchport.verification import LOW_PRECISION, Tolerance, compare, difference_histograms
from torchport.zoo.model import Model


@dataclass(frozen=True, slots=True)
class Trial:
    """A compiled model with its record and its accuracy."""

    compiled: CompiledModel
    record: BringUp
    accuracy: Accuracy


def bring_up(
    model: Model,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    tolerance: Tolerance | None = None,
    output: Path | None = None,
    contents: FileContents = PLAIN,
    emit: Path | None = None,
) -> BringUp:
    """Compile a model for a target, run both on the model's inputs, and compare their results.

    Args:
        model: the model to bring up, as `zoo.load` returns it.
        target: the target's name.
        options: the target's options.
        dynamic_shapes: as in `torchport.compile`.
        tolerance: the allowed error; by default that of each output's dtype, or a wider one for a target that
            computes in lower precision.
        emit: a file to write the target's program to, if given.
        output: a file to write the compiled model to, `.pt2` or `.pt`; see `torchport.save` and `trace`.
        contents: what to store in that file.

    Returns:
        The coverage and the comparison. Inputs that the model mutates are compared as well.

    Raises:
        TorchportError: the model raises, or cannot be compiled.

    Example:
        >>> bring_up(zoo.load("timm:test_resnet", weights=False), target="host").comparison.ok
        True
    """
    if output is not None:
        check_file_name(output, contents)  # before spending minutes on compiling
    trial = try_out(model, target=target, options=options, dynamic_shapes=dynamic_shapes, tolerance=tolerance)
    if emit is not None:
        trial.compiled.emit(emit)
    if output is not None:
        write_model(trial.compiled, model.args, model.kwargs, output, contents)
    return trial.record


def try_out(
    model: Model,
    *,
    target: str,
    options: Mapping[str, object] | None,
    dynamic_shapes: object = None,
    tolerance: Tolerance | None = None,
    compiled_instead: nn.Module | None = None,
) -> Trial:
    """Like `bring_up`, but also return the compiled model.

    Args:
        model, target, options, dynamic_shapes, tolerance: as in `bring_up`.
        compiled_instead: a module to compile in the model's place, such as its quantized version.
    """
    found = targets.find(target)
    if tolerance is None and found.is_low_precision(found.make_options(options)):
        tolerance = LOW_PRECISION
    args, kwargs = copy_inputs(model)
    start = time.perf_counter()
    with buffers_kept(model.module), noting_time() as spent:
        compiled = compile(
            model.module if compiled_instead is None else compiled_instead,
            args,
            kwargs,
            target=target,
            dynamic_shapes=dynamic_shapes,
            options=options,
            name=model.name,
        )
        coverage = compiled.coverage  # a generating model is compiled lazily: this triggers it
    compile_time = time.perf_counter() - start
    expected = _run_original(model)
    actual = run_isolated(compiled, model)
    comparison = _compare(model, actual, expected, tolerance)
    record = BringUp(
        model.name,
        target,
        coverage,
        comparison,
        compile_time,
        actual.seconds,
        compiled.simulated_seconds,
        compiled.tries,
        spent.seconds,
    )
    histograms = difference_histograms(actual.result, expected.result)
    return Trial(compiled, record, Accuracy(model.name, target, comparison.outputs, histograms))


def _run_original(model: Model) -> RunOutcome:
    try:
        return run_isolated(model.module, model)
    except Exception as error:
        raise SurveyError(
            f"the model itself raises {one_line(error)}",
            where=model.name,
            remedy="run it on these inputs in plain PyTorch first",
        ) from error


def _compare(
    model: Model, actual: RunOutcome, expected: RunOutcome, tolerance: Tolerance | None
) -> Comparison:
    """Compare the results, the inputs that the model mutates, and any that differ though it does not."""
    results = compare(actual.result, expected.result, tolerance=tolerance)
    inputs = compare({"inputs": actual.inputs}, {"inputs": expected.inputs}, tolerance=tolerance)
    changed = _changed_inputs(model, expected)
    rows = tuple(row for row in inputs.outputs if not row.ok or row.path in changed)
    if not rows:
        return results
    return replace(
        results,
        ok=results.ok and inputs.ok,
        pcc=min(results.pcc, *(row.pcc for row in rows)),
        max_absolute=max(results.max_absolute, *(row.max_absolute for row in rows)),
        max_relative=max(results.max_relative, *(row.max_relative for row in rows)),
        outputs=results.outputs + rows,
    )


def _changed_inputs(model: Model, outcome: RunOutcome) -> set[str]:
    before = dict(tensors_in({"inputs": {"args": model.args, **model.kwargs}}))
    after = tensors_in({"inputs": outcome.inputs})
    return {path for path, tensor in after if path not in before or not torch.equal(before[path], tensor)}
