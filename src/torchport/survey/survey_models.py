"""Surveys many models: each in its own process, each with a row for its outcome."""

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
    """Reports progress; the methods do nothing unless they are overridden."""

    def planned(self, models: int, done_before: Sequence[SurveyRow]) -> None:
        """So many models are to be surveyed, and these were before."""

    def started(self, model: str) -> None:
        """A model is begun."""

    def finished(self, row: SurveyRow) -> None:
        """A model is done, and its row is written."""


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

    A model that raises, hangs, crashes or takes too much memory costs its own row, with the reason. Files are
    written whole: `output/raw/` has the ops, `output/rows/` the outcome of each model. An interrupted survey
    resumes: what is done, with the same settings and versions, is not done again.

    Args:
        models: their names, as `zoo.load` takes them.
        output: the directory.
        settings: what is done with each model; by default, its forward ops are recorded.
        engine: `local`, `ray`, or an engine with its own settings.
        timeout: how many seconds a model may take.
        memory: how many bytes of memory a model's process may hold; by default its share of the machine's.
        retry: whether models that failed before are tried again.
        progress: is told of each model.

    Returns:
        A row for each model, in their order: also of those that were done before.

    Raises:
        SurveyError: no model is named, or another survey is writing to the directory.
        RecordError: a file cannot be written, as on a full disk. What was written before stays.
        TargetError: the backend is neither `stat` nor a target's name.

    Example:
        >>> [row] = run_survey(["torchvision:resnet18"], settings=SurveySettings(backward=True))
        >>> row.status, row.forward_ops, row.backward_ops
        ('ok', 132, 210)
    """
    if not models:
        raise SurveyError("no model is named", remedy="name models, or a zoo of them")
    chosen = settings or SurveySettings()
    _check(chosen)
    runner = make_engine(engine) if isinstance(engine, str) else engine
    limits = Limits(timeout, memory if memory is not None else _memory_share(runner.workers))
    items = [WorkItem(name, chosen) for name in dict.fromkeys(models)]
    directory = SurveyDirectory(Path(output))
    told = progress or SurveyProgress()
    with directory.locked():
        directory.remove_leftovers()
        rows = {item.model: row for item in items if (row := directory.row_of(item)) is not None}
        if retry:
            rows = {model: row for model, row in rows.items() if row.status == "ok"}
        told.planned(len(items), tuple(rows.values()))
        waiting = [item for item in items if item.model not in rows]
        if waiting:
            # Closed at once, if a row cannot be written: whatever still runs is then ended.
            with closing(runner.run(waiting, limits, lambda item: told.started(item.model))) as outcomes:
                for outcome in outcomes:
                    row = rows[outcome.item.model] = directory.keep(outcome)
                    told.finished(row)
    return tuple(rows[item.model] for item in items)


def _check(settings: SurveySettings) -> None:
    """Refuse what cannot be, before anything runs."""
    need_posix()
    if importlib.util.find_spec("psutil") is None:
        raise SurveyError(
            "a survey watches its processes with psutil, which is not installed",
            remedy='pip install "torchport[survey]"',
        )
    if settings.backend == STAT:
        import_duckdb()
        if settings.options:
            raise SurveyError("the stat backend has no options", remedy="options are a target's")
        return
    if settings.backward or settings.train or settings.profile:
        raise SurveyError(
            f"a survey on {settings.backend} runs inference, and records no graphs",
            remedy="leave out backward, train and profile, or survey with the backend 'stat'",
        )
    targets.find(settings.backend).make_options(settings.options)


def _memory_share(workers: int) -> int:
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(present * _SHARE_OF_MEMORY / workers)
