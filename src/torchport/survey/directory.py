"""The directory of a survey: its lock, and the rows and files of the items done so far."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torchport.bringup.machine import describe_machine, versions_for
from torchport.errors import RecordError, SurveyError, shortened
from torchport.records import (
    BenchRecord,
    SurveyRow,
    atomic_write,
    file_name,
    lock_file,
    read_record,
    refuse_links,
    write_record,
)
from torchport.survey.system import need_posix
from torchport.survey.work_item import STAT, ItemOutcome, WorkItem, versions_of

RAW, PROFILE, ROWS = "raw", "profile", "rows"
_FOLDERS = (RAW, PROFILE, ROWS, "bench", "coverage")
_LOCK = ".survey.lock"


class SurveyDirectory:
    """A survey's files: `raw/`, `profile/`, `bench/`, `coverage/`, and a row for each item in `rows/`.

    A row is written last and removed first, so that an existing row matches the other files.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Lock the directory against other surveys; the lock is released even if the process is killed.

        Args:
            shared: whether other holders of a shared lock may write too, each to files of its own.

        Raises:
            SurveyError: another survey is writing here, the directory cannot be created, or the system has
                no file locks.
            RecordError: one of its folders is a link.
        """
        need_posix()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for folder in _FOLDERS:  # a resumed survey may be untrusted
                refuse_links(self.path, self.path / folder / "any file")
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise SurveyError(f"cannot be written: {error.strerror}", where=str(self.path)) from error
        try:
            lock_file(handle, shared=shared)
        except OSError as error:
            os.close(handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise SurveyError(f"cannot be locked: {error.strerror}", where=str(self.path)) from error
            raise SurveyError(
                "another survey is writing there",
                where=str(self.path),
                remedy="wait until it is done, or choose another directory: output= (-o)",
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    def row_of(self, item: WorkItem) -> SurveyRow | None:
        """Return an item's row if it was done before with the same settings and versions, else None."""
        path = self._row_path(item)
        if not path.exists():
            return None
        try:
            row = read_record(path, SurveyRow)
        except RecordError:
            return None  # from another version, or damaged: the item is done again
        if row.settings != item.settings.as_texts() or row.versions != versions_of(item):
            return None
        if row.raw and row.raw != _raw_name(item):
            return None
        return None if row.raw and not (self.path / RAW / row.raw).is_file() else row

    def keep(self, outcome: ItemOutcome) -> SurveyRow:
        """Write the outcome of an item, each file atomically, replacing an earlier outcome.

        Raises:
            RecordError: a file cannot be written; it is not left partly written.
        """
        item = outcome.item
        row = SurveyRow.from_json(outcome.row)
        row = replace(
            row,
            error=shortened(row.error),
            note=shortened(row.note),
            settings=item.settings.as_texts(),
            versions=versions_of(item),
        )
        path = self._row_path(outcome.item)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise RecordError(f"cannot be replaced: {error.strerror}", where=str(path)) from error
        for name, content in outcome.files.items():
            with atomic_write(self.path / name) as temporary:
                temporary.write_bytes(content)
        if row.status != "ok":
            self._keep_failure(outcome.item, row)
        write_record(row, path)
        return row

    def _keep_failure(self, item: WorkItem, row: SurveyRow) -> None:
        """Remove what an earlier survey recorded of the model, and write the record of a failed benchmark."""
        target = item.settings.backend
        if target == STAT:
            (self.path / RAW / _raw_name(item)).unlink(missing_ok=True)
            return
        record = BenchRecord(item.model, target, "failed", error=row.error)
        record = replace(record, versions=versions_for(target), machine=describe_machine())
        name = file_name(item.model, target)
        write_record(record, self.path / "bench" / name)
        (self.path / "coverage" / name).unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Remove the temporary files of a survey that was killed while it wrote."""
        for folder in _FOLDERS:
            for path in (self.path / folder).glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _row_path(self, item: WorkItem) -> Path:
        names = (item.model,) if item.settings.backend == STAT else (item.model, item.settings.backend)
        return self.path / ROWS / file_name(*names)


def _raw_name(item: WorkItem) -> str:
    """Return the name of an item's raw file."""
    return Path(file_name(item.model)).with_suffix(".parquet").name
