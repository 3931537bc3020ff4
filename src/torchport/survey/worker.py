"""A worker process that runs items one after another, each in its own child: the parent's side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import cast

from torchport.errors import SurveyError
from torchport.records import JSON, SurveyRow, SurveyStatus, temporary_folder
from torchport.survey.process_tree import MARK, end_descendants, end_marked
from torchport.survey.work_item import ItemOutcome, Limits, WorkItem

PROGRAM = "torchport.survey.worker_process"
READY = "ready"


class Worker:
    """A worker process. It is started when it is first needed, and restarted after it died.

    Args:
        threads: the number of threads that its processes compute with.
        folder: the working directory, against which relative paths of models' files are resolved.
    """

    def __init__(self, threads: int, folder: str) -> None:
        self.closed = False
        self._threads = max(1, threads)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._mark = uuid.uuid4().hex
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the worker
        self._lock = threading.Lock()  # serializes closing and starting

    def run(self, item: WorkItem, limits: Limits) -> ItemOutcome:
        """Run an item; there is an outcome whatever happens to its process.

        Raises:
            SurveyError: the worker cannot be started, or its disk is full.
        """
        with temporary_folder("survey") as kept:
            folder = kept / "item"
            folder.mkdir()
            request: dict[str, JSON] = {
                "item": item.to_json(),
                "folder": str(folder),
                "temporary": str(kept),
                "seconds": limits.seconds,
                "memory": limits.memory,
            }
            answer = self._ask(request)
            row = _row(item, answer)
            files = {} if row.status != "ok" else _read_files(folder)
        return ItemOutcome(item, row.to_json(), files)

    def close(self) -> None:
        """Kill the process and its descendants."""
        with self._lock:
            self.closed = True
            process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGSTOP)  # so that it starts no more processes
                end_descendants(process.pid)
                process.kill()
            process.wait()
        self._log.close()

    def _ask(self, request: dict[str, JSON]) -> dict[str, JSON]:
        """Return the worker's answer to a request, or a `crashed` status if the worker died."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        line = ""
        with contextlib.suppress(OSError):  # it died, and the line stays empty
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if line.endswith("\n"):
            return cast("dict[str, JSON]", json.loads(line))
        code = process.wait()
        end_marked(self._mark)  # its descendants may have outlived it
        return {"status": "crashed", "error": f"its worker process {_ended(code)}"}

    def _started(self) -> subprocess.Popen[str]:
        """Return the running process; start one if there is none."""
        with self._lock:
            if self.closed:
                raise SurveyError("the worker is closed")
            if self._process is not None and self._process.poll() is None:
                return self._process
            process = self._process = self._start()
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY and not self.closed:
            raise SurveyError(
                f"a worker process failed to start: it {_ended(process.wait())}{self._last_log_line()}",
                remedy=f"run `{sys.executable} -m {PROGRAM}` to see why",
            )
        return process

    def _start(self) -> subprocess.Popen[str]:
        self._log.seek(0)
        self._log.truncate()
        return subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,  # models and libraries print to it
            text=True,
            cwd=self._folder if os.path.isdir(self._folder) else None,  # it may not exist on another machine
            env=self._environment(),
        )

    def _last_log_line(self) -> str:
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return f" ({lines[-1].strip()[:300]})" if lines else ""

    def _environment(self) -> dict[str, str]:
        here = str(Path(__file__).parents[2])
        inherited = os.environ.get("PYTHONPATH")
        return os.environ | {
            # The worker imports the same torchport as this process.
            "PYTHONPATH": here + (os.pathsep + inherited if inherited else ""),
            "OMP_NUM_THREADS": str(self._threads),
            MARK: self._mark,
        }


def _row(item: WorkItem, answer: dict[str, JSON]) -> SurveyRow:
    if answer.get("no_space"):
        raise SurveyError(
            f"there is no space left for temporary files in {tempfile.gettempdir()}",
            where=item.model,
            remedy="free some space there, or set TMPDIR; then run the same survey again",
        )
    found = answer.get("row")
    row = SurveyRow.from_json(found) if found is not None else SurveyRow(item.model, "crashed")
    status, error = answer.get("status"), answer.get("error")
    if status is not None:
        row = replace(row, status=cast("SurveyStatus", status), error=str(error))
    return replace(
        row,
        seconds=float(cast("float", answer.get("seconds", 0.0))),
        peak_bytes=int(cast("int", answer.get("peak_bytes", 0))),
    )


def _read_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
