"""Benchmarks one model on one target: times before and after compiling, and accuracy."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torchport.bringup.isolated_runs import copy_inputs, timed
from torchport.bringup.machine import describe_machine, versions_for
from torchport.bringup.model_trial import Trial, try_out
from torchport.capture import buffers_kept
from torchport.compiler.timing import Clocked, time_interleaved
from torchport.errors import QuantizationError, one_line
from torchport.quantization import QuantizedModel, item_of, quantize
from torchport.records import (
    DEFAULT_TARGET,
    PCC_THRESHOLD,
    Accuracy,
    BenchRecord,
    BringUp,
    Coverage,
    ModelGraph,
)
from torchport.structure import tensors_in
from torchport.zoo.model import Model

_log = logging.getLogger(__name__)

BenchMethod = Literal["ptq", "dynamic", "weight_only"]


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How to measure.

    Args:
        runs: the number of timed runs of each; by default as many as `budget` allows.
        warmup: the number of warm-up runs of each, which are not timed.
        budget: about how many seconds to spend timing; at least five runs are made in any case.
        pcc_threshold: the required accuracy (PCC).
        new_tokens: how many tokens to generate, to time generation; 0 to time the forward.
        quantize: the method to quantize models with first, as in `torchport.quantize`.
        calibration: returns the calibration data; without it, the example inputs are used, except for `ptq`,
            which requires it.
    """

    runs: int | None = None
    warmup: int = 2
    budget: float = 4.0
    pcc_threshold: float = PCC_THRESHOLD
    new_tokens: int = 0
    quantize: BenchMethod | None = None
    calibration: Callable[[], Iterable[object]] | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row of the results table, with the details that were obtained before any failure.

    Args:
        record: the row.
        coverage: which ops run on the target.
        graph: the same, op by op.
        accuracy: the error of each output.
    """

    record: BenchRecord
    coverage: Coverage | None = None
    graph: ModelGraph | None = None
    accuracy: Accuracy | None = None


def run_bench(
    model: Model,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    settings: BenchSettings | None = None,
) -> BenchRecord:
    """Run a model before and after compiling it for a target, and compare results and times.

    Args:
        model: the model to measure, as `zoo.load` returns it.
        target: the target's name.
        options: the target's options.
        dynamic_shapes: as in `torchport.compile`.
        settings: how to measure.

    Returns:
        The row. A model that fails for any reason gives a row with the error.

    Raises:
        TargetError: there is no such target.

    Example:
        >>> run_bench(zoo.load("timm:test_resnet", weights=False), target="host").status
        'ok'
    """
    return measure(
        model, target=target, options=options, dynamic_shapes=dynamic_shapes, settings=settings
    ).record


def measure(
    model: Model,
    *,
    target: str,
    options: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    settings: BenchSettings | None = None,
) -> Measurement:
    """Like `run_bench`, but also return the coverage."""
    chosen = settings or BenchSettings()
    row = BenchRecord(
        model.name,
        target,
        "failed",
        batch=batch_of(model),
        pcc_threshold=chosen.pcc_threshold,
        versions=versions_for(target),
        machine=describe_machine(),
    )
    found = Measurement(row)
    try:
        quantized = _quantized(model, target, chosen)
        row = _with_quantization(row, quantized)
        trial = try_out(
            model, target=target, options=options, dynamic_shapes=dynamic_shapes, compiled_instead=quantized
        )
        # Named after the row: with `auto`, their target is the engine that it chose.
        coverage = replace(trial.record.coverage, target=target)
        found = Measurement(row, coverage, replace(trial.compiled.graph, target=target), trial.accuracy)
        row = _with_findings(row, trial.record)
        row = _with_times(row, model, trial, chosen)
        return replace(found, record=_with_status(row, trial.record))
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row fails
        _log.debug("%s failed on %s", model.name, target, exc_info=True)
        return replace(found, record=replace(row, error=one_line(error)))


def _quantized(model: Model, target: str, settings: BenchSettings) -> QuantizedModel | None:
    """Return the quantized model, if the settings ask for quantization."""
    if settings.quantize is None:
        return None
    if settings.calibration is not None:
        data = settings.calibration()
    elif settings.quantize != "ptq":
        data = [item_of(model.module, model.args, model.kwargs)]
    else:
        raise QuantizationError(
            "ptq needs calibration data", where=model.name, remedy="pass some, or use dynamic or weight_only"
        )
    return quantize(model.module, data, method=settings.quantize, target=target, name=model.name)


def _with_quantization(row: BenchRecord, quantized: QuantizedModel | None) -> BenchRecord:
    if quantized is None:
        return row
    plan, report = quantized.plan, quantized.report
    count = len(plan.layers) - plan.count("float")
    # If all layers went back to floating point, the timed model is not the one that is used.
    timed_both = count and report.seconds_float and report.seconds
    return replace(
        row,
        quantization=plan.method,
        layers=len(plan.layers),
        layers_quantized=count,
        size_ratio=report.bytes / report.bytes_float if report.bytes_float else None,
        float_speedup=report.seconds_float / report.seconds if timed_both else None,  # type: ignore[operator]  # checked above
    )


def batch_of(model: Model) -> int | None:
    """Return the first dimension's size of the first input tensor that has dimensions."""
    for _, tensor in tensors_in((model.args, dict(model.kwargs))):
        if tensor.dim():
            return tensor.shape[0]
    return None


def _with_findings(row: BenchRecord, found: BringUp) -> BenchRecord:
    return replace(
        row,
        ops_before=found.coverage.ops_before,
        unique_before=found.coverage.unique_before,
        ops_remain=found.coverage.ops_remain,
        unique_remain=found.coverage.unique_remain,
        transfers=found.coverage.transfers,
        first_run_time=found.compile_time + found.first_call_time,
        speed_trial_time=found.speed_trial_time,
        pcc=found.comparison.pcc,
        max_absolute=found.comparison.max_absolute,
        tries=found.tries,
        versions=row.versions | (found.tries.versions if found.tries is not None else {}),
    )


def _with_times(row: BenchRecord, model: Model, trial: Trial, settings: BenchSettings) -> BenchRecord:
    estimate = trial.record.simulated_time
    ours = _clocked(trial.compiled, model)
    if estimate is not None:  # the simulator's own run time is meaningless
        ours = functools.partial(float, estimate)
    with buffers_kept(model.module):
        timing = time_interleaved(
            _clocked(model.module, model),
            ours,
            runs=settings.runs,
            warmup=settings.warmup,
            budget=settings.budget,
        )
    return replace(
        row,
        original_time=timing.first,
        compiled_time=timing.second,
        simulated=estimate is not None,
        runs=timing.runs,
        fallbacks=trial.compiled.fallbacks,
    )


def _clocked(call: object, model: Model) -> Clocked:
    assert callable(call)

    def clock() -> float:
        args, kwargs = copy_inputs(model)  # outside the timed part: the original would not copy either
        return timed(call, args, kwargs)[0]

    return clock


def _with_status(row: BenchRecord, found: BringUp) -> BenchRecord:
    below = [output for output in found.comparison.outputs if output.pcc < row.pcc_threshold]
    excesses = [output.excess for output in below if output.excess is not None]
    row = replace(row, excess=max(excesses, default=None))
    wrong = [output for output in below if not output.is_accurate(row.pcc_threshold)]
    if not wrong:
        return replace(row, status="ok")
    worst = min(wrong, key=lambda output: output.pcc)
    error = f"{worst.path}: the PCC is {worst.pcc:.6f}, below {row.pcc_threshold:g}; {worst.detail}"
    return replace(row, status="inaccurate", error=error.rstrip("; "))
