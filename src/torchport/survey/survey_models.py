"""Surveys many models, each in its own process and with a row for its outcome."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from torchport import targets
from torchport.errors import SurveyError
from torchport.records import SurveyRow
from torchport.survey.directory import SurveyDirectory
from torchport.survey.engines import Engine, make_engine
from torchport.survey.stat.raw_file import import_duckdb
from torchport.survey.system import need_posix
from torchport.survey.work_item import STAT, Limits, SurveySettings, WorkItem

SECONDS = 600.0
_SHARE_OF_MEMORY = 0.8


class SurveyProgress:
    """Callbacks that report progress; the methods do nothing unless they are overridden."""

    def planned(self, models: int, done_before: Sequence[SurveyRow]) -> None:
        """Report the total number of models, and the rows of those that an earlier run completed."""

    def started(self, model: str) -> None:
        """Report that a model's process starts."""

    def finished(self, row: SurveyRow) -> None:
        """Report that a model is done and its row is written."""


def run_survey(
    models: Sequence[str],
    *,
    output: Path | str = "stat",
    settings: SurveySettings | None = None,
    engine: Engine | str = "local",
    timeout: float = SECONDS,
    memory: int | None = None,
    retry: bool = False,
    progress: SurveyProgress | None = None,
) -> tuple[SurveyRow, ...]:
    """Record the ops of many models, forward and backward, each in a process of its own.

    A model that raises, hangs, crashes or exceeds its memory limit affects only its own row, which says why.
    Files are written atomically: the ops to `output/raw/`, the outcome of each model to `output/rows/`. An
    interrupted survey resumes: models done with the same settings and versions are not repeated.

    Args:
        models: their names, as `zoo.load` takes them.
        output: the directory to write to.
        settings: what is done with each model; by default, its forward ops are recorded.
        engine: `local`, `ray`, or a configured engine.
        timeout: the time limit of a model, in seconds.
        memory: the memory limit of a model's process, in bytes; by default its share of the machine's memory.
        retry: whether to try models again that failed before.
        progress: receives a callback for each model.

    Returns:
        A row for each model, in order, including those completed by an earlier run.

    Raises:
        SurveyError: no models are given, another survey is writing to the directory, or surveys cannot run
            on this system.
        RecordError: a file cannot be written, as on a full disk. Files already written remain.
        TargetError: the backend is neither `stat` nor a target's name.

    Example:
        >>> [row] = run_survey(["torchvision:resnet18"], settings=SurveySettings(backward=True))
        >>> row.status, row.forward_ops, row.backward_ops
        ('ok', 132, 210)
    """
    if not models:
        raise SurveyError("no models are given", remedy="name models, or a zoo")
    chosen = settings or SurveySettings()
    _check(chosen)
    runner = make_engine(engine) if isinstance(engine, str) else engine
    limits = Limits(timeout, memory if memory is not None else _memory_share(runner.workers))
    items = [WorkItem(name, chosen) for name in dict.fromkeys(models)]
    directory = SurveyDirectory(Path(output))
    callbacks = progress or SurveyProgress()
    with directory.locked():
        directory.remove_leftovers()
        rows = {item.model: row for item in items if (row := directory.row_of(item)) is not None}
        if retry:
            rows = {model: row for model, row in rows.items() if row.status == "ok"}
        callbacks.planned(len(items), tuple(rows.values()))
        waiting = [item for item in items if item.model not in rows]
        if waiting:
            # Closed at once if a row cannot be written, which ends the items that are still running.
            with closing(runner.run(waiting, limits, lambda item: callbacks.started(item.model))) as outcomes:
                for outcome in outcomes:
                    row = rows[outcome.item.model] = directory.keep(outcome)
                    callbacks.finished(row)
    return tuple(rows[item.model] for item in items)


def _check(settings: SurveySettings) -> None:
    """Reject impossible settings before anything runs."""
    need_posix()
    if importlib.util.find_spec("psutil") is None:
        raise SurveyError(
            "a survey monitors its processes with psutil, which is not installed",
            remedy='pip install "torchport[survey]"',
        )
    if settings.backend == STAT:
        import_duckdb()
        if settings.options:
            raise SurveyError("the stat backend has no options", remedy="only targets have options")
        return
    if settings.backward or settings.train or settings.profile:
        raise SurveyError(
            f"a survey on {settings.backend} only runs inference, and records no graphs",
            remedy="omit backward, train and profile, or use the backend 'stat'",
        )
    targets.find(settings.backend).make_options(settings.options)


def _memory_share(workers: int) -> int:
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(present * _SHARE_OF_MEMORY / workers)
