"""Benchmarks many models on many targets; writes one file per row, as each is done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchport import targets as known_targets
from torchport import zoo
from torchport.bringup.bench import BenchSettings, Measurement, measure
from torchport.bringup.generation_bench import measure_generation
from torchport.bringup.machine import describe_machine, versions_for
from torchport.errors import SurveyError, one_line
from torchport.records import BenchRecord, file_name, write_record
from torchport.zoo.model import Model

_log = logging.getLogger(__name__)

Load = Callable[[str], Model]


class Progress:
    """Reports progress; the methods do nothing unless they are overridden."""

    def loading(self, model: str) -> None:
        """A model is being loaded."""

    def started(self, model: str, target: str) -> None:
        """A row is started."""

    def finished(self, record: BenchRecord) -> None:
        """A row is done and written."""


def run_benches(
    models: Sequence[str],
    *,
    targets: Sequence[str],
    directory: Path,
    options: Mapping[str, Mapping[str, object]] | None = None,
    settings: BenchSettings | None = None,
    load: Load = zoo.load,
    progress: Progress | None = None,
) -> tuple[BenchRecord, ...]:
    """Benchmark each model on each target.

    Each row is written to `directory/bench/` when it is done, its coverage to `directory/coverage/`, the
    coverage op by op to `directory/graph/`, and its outputs' errors to `directory/accuracy/`, each file
    atomically. A model that cannot be loaded or run fails only its own rows.

    Args:
        models: the models' names, as `zoo.load` takes them.
        targets: the targets' names.
        directory: where records go; existing rows are replaced.
        options: each target's options, by target name.
        settings: how to measure.
        load: loads a model by name; `zoo.load`, or the same with keywords set.
        progress: is notified of each row.

    Returns:
        The rows, in the order of models and targets.

    Raises:
        SurveyError: no model or no target is named.
        TargetError: a target or an option is unknown; nothing has been run.
        RecordError: a record cannot be written.

    Example:
        >>> run_benches(["hf-small:bert"], targets=["host"], directory=Path("out"))[0].status
        'ok'
    """
    if not models or not targets:
        raise SurveyError("at least one model and one target must be named")
    given = options or {}
    for target in targets:
        known_targets.find(target).make_options(given.get(target))
    told = progress or Progress()
    rows: list[BenchRecord] = []
    for name in dict.fromkeys(models):
        told.loading(name)
        loaded = _load(name, load)
        for target in dict.fromkeys(targets):
            told.started(name, target)
            measured = _measure(name, loaded, target, given.get(target), settings)
            _write(measured, directory)
            rows.append(measured.record)
            told.finished(measured.record)
    return tuple(rows)


def _load(name: str, load: Load) -> Model | str:
    """Return the model, or why it cannot be loaded."""
    try:
        return replace(load(name), name=name)  # rows are identified by the requested name
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file may do anything when it is run
        _log.debug("%s cannot be loaded", name, exc_info=True)
        return one_line(error)


def _measure(
    name: str,
    loaded: Model | str,
    target: str,
    options: Mapping[str, object] | None,
    settings: BenchSettings | None,
) -> Measurement:
    if isinstance(loaded, Model) and settings is not None and settings.new_tokens:
        return measure_generation(loaded, target=target, options=options, settings=settings)
    if isinstance(loaded, Model):
        return measure(loaded, target=target, options=options, settings=settings)
    versions, machine = versions_for(target), describe_machine()
    return Measurement(BenchRecord(name, target, "failed", error=loaded, versions=versions, machine=machine))


def _write(measured: Measurement, directory: Path) -> None:
    name = file_name(measured.record.model, measured.record.target)
    if measured.record.quantization:  # kept apart from the float model's row, which has the coverage
        quantized = file_name(measured.record.model, measured.record.target, measured.record.quantization)
        write_record(measured.record, directory / "bench" / quantized)
        return
    write_record(measured.record, directory / "bench" / name)
    for part in ("coverage", "graph", "accuracy"):
        record = getattr(measured, part)
        if record is not None:
            write_record(record, directory / part / name)
        else:  # a file from an earlier run would not belong to this row
            (directory / part / name).unlink(missing_ok=True)
