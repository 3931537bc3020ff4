"""A worker process that runs items one after another, each in its own child: the worker's side.

It imports torch once and forks for each item, so that an item's process starts in milliseconds, and whatever
the item does to its process ends with it. It has no threads, so that no lock is held across a fork. Where
forking is not safe, each item gets a new process, which imports torch again and so takes seconds to start. So
does an item that uses a GPU, which forked processes cannot: GPUs are hidden from them.
Requests arrive as lines of JSON on standard input; answers are written as lines of JSON to standard output.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

from torchport.capture import capture_graphs
from torchport.errors import SurveyError, message_of, one_line
from torchport.records import JSON
from torchport.survey.process_tree import (
    adopt_orphans,
    descendants,
    end_descendants,
    memory_held,
)
from torchport.survey.run_item import run_item
from torchport.survey.stat.op_rows import rows_of
from torchport.survey.stat.raw_file import import_duckdb
from torchport.survey.system import (
    can_fork_after_backward,
    end_with_parent,
    forks_safely,
    has_gpu,
    hide_gpus,
    peak_memory,
)
from torchport.survey.work_item import LIBRARIES, STAT, WorkItem
from torchport.survey.worker import READY
from torchport.zoo.extras import import_library

_INTERVAL = 0.02  # seconds between checks of a child
_FAMILY_EVERY = 10  # the child's descendants are included in every tenth check, since finding them is slow
_ITEM, _RESULT = "item.json", "result.json"
_NAMES_GPU = re.compile(r"\b(cuda|cudnn|nvidia|gpus?|hip|rocm)\b", re.IGNORECASE)


def main() -> None:
    """Serve requests until standard input is closed, or run the single item in a given folder."""
    if len(sys.argv) > 1:
        _run_item_in(Path(sys.argv[1]))
        return
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of models and libraries must not mix with the answers
    adopt_orphans()
    processes = _Processes()
    if processes.fork:
        _prepare()
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _serve(request, answers, processes)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class _Processes:
    """Which kind of process an item runs in: a forked one, which sees no GPU, or a new one, which does."""

    def __init__(self) -> None:
        self.fork = forks_safely()
        self._has_gpu = self.fork and has_gpu()
        # The environment of new processes.
        self.environment = hide_gpus() if self._has_gpu else dict(os.environ)

    def is_forked(self, item: WorkItem) -> bool:
        """Whether an item runs in a forked process, at least at first."""
        return self.fork and (item.settings.backend == STAT or not self._has_gpu)

    def wants_gpu(self, answer: Mapping[str, JSON]) -> bool:
        """Whether an item failed in a forked process because a GPU was hidden from it."""
        failed = self._has_gpu and answer.get("status") == "raised"
        return failed and _NAMES_GPU.search(str(answer.get("error"))) is not None


class _TypicalModel(nn.Module):
    """A model of common ops, to warm up: the first time that torch traces an op is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.SiLU(inplace=True),
            nn.Hardswish(),
            nn.MaxPool2d(2),
            nn.ReLU6(),
        )
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Sigmoid())
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 4))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return a small tensor."""
        image = self.image(image)
        image = torch.cat([image, image * self.gate(image)], dim=1).chunk(2, dim=1)[0] + image
        tokens = image.flatten(2).permute(2, 0, 1).contiguous()
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        result: torch.Tensor = self.head(tokens).softmax(dim=-1).mean(dim=0)
        return result


def _prepare() -> None:
    """Import and trace what nearly every model needs, once for all children."""
    torch.set_num_threads(1)  # threads do not survive a fork
    with contextlib.suppress(SurveyError):  # the item that needs it raises the error
        import_duckdb()
    with torch.device("meta"):
        model, image = _TypicalModel().eval(), torch.ones(1, 3, 16, 16)
    graphs = capture_graphs(model, (image,))
    # Asked after a capture, which changes the answer.
    if can_fork_after_backward():
        graphs = capture_graphs(model, (image,), backward=True)
    assert sum(1 for _ in rows_of("usual", graphs))


def _serve(request: dict[str, JSON], answers: TextIO, processes: _Processes) -> dict[str, JSON]:
    item = WorkItem.from_json(request["item"])
    _import_library(item)
    folder = Path(str(request["folder"]))
    if processes.is_forked(item):
        answer = _run_in_child(request, lambda: _fork(item, folder, answers))
        if not processes.wants_gpu(answer):
            return answer
    return _run_in_child(request, lambda: _spawn(item, folder, processes.environment))


def _run_in_child(request: Mapping[str, JSON], start_child: Callable[[], int]) -> dict[str, JSON]:
    """Run an item in a child of this process, and return the answer to the request."""
    start = time.monotonic()
    spared = {process.pid for process in descendants(os.getpid())}
    pid = start_child()
    child = _Child(pid, start + float(str(request["seconds"])), int(str(request["memory"])), spared)
    try:
        verdict = child.wait()
    except _ParentGone:
        shutil.rmtree(str(request["temporary"]), ignore_errors=True)  # the parent can no longer remove it
        sys.exit(0)
    answer: dict[str, JSON] = {"seconds": time.monotonic() - start, "peak_bytes": child.peak}
    if verdict is None:
        found = _read_result(Path(str(request["folder"])))
        if found is not None:
            return answer | found
        verdict = ("crashed", "its process exited with code 0 before it returned a result")
    status, error = verdict
    return answer | {"status": status, "error": error}


def _read_result(folder: Path) -> dict[str, JSON] | None:
    """Return the result that an item's process wrote, and remove it; None if it wrote none."""
    result = folder / _RESULT
    try:
        found: dict[str, JSON] = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    result.unlink()
    return found


def _fork(item: WorkItem, folder: Path, answers: TextIO) -> int:
    gc.collect()
    gc.freeze()  # garbage collection in the child would write to, and so copy, every object's page
    pid = os.fork()
    if pid == 0:
        _be_child(item, folder, answers)
    return pid


def _spawn(item: WorkItem, folder: Path, environment: Mapping[str, str]) -> int:
    (folder / _ITEM).write_text(json.dumps(item.to_json()), encoding="utf-8")
    command = [sys.executable, "-m", "torchport.survey.worker_process", str(folder)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
    child.returncode = 0  # `_Child` waits for the process; this object must not
    return child.pid


def _run_item_in(folder: Path) -> None:
    end_with_parent()
    item = WorkItem.from_json(json.loads((folder / _ITEM).read_text(encoding="utf-8")))
    (folder / _ITEM).unlink()  # only the item's results may stay in the folder
    _run(item, folder)


def _import_library(item: WorkItem) -> None:
    library = LIBRARIES.get(item.model.partition(":")[0])
    if library is not None and not item.is_file:
        with contextlib.suppress(Exception):  # the child reports the error
            import_library(library)


def _be_child(item: WorkItem, folder: Path, answers: TextIO) -> None:
    """Run an item in this forked child, and exit."""
    code = 1
    try:
        os.setsid()  # so that it is killed together with its descendants
        end_with_parent()
        os.close(answers.fileno())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        _run(item, folder)
        code = 0
    finally:
        os._exit(code)


def _run(item: WorkItem, folder: Path) -> None:
    """Run an item and write its result to the folder."""
    found: dict[str, JSON]
    try:
        found = {"row": run_item(item, folder).to_json()}
    except MemoryError as error:
        found = {"status": "memory", "error": f"it ran out of memory: {one_line(error)}"}
    except BaseException as error:  # noqa: BLE001  # a model may raise anything; only its own row is affected
        found = {"status": "raised", "error": one_line(error), "no_space": _is_full(error)}
    (folder / _RESULT).write_text(json.dumps(found), encoding="utf-8")


def _is_full(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in message_of(cause):
            return True
        cause = cause.__cause__
    return False


class _ParentGone(Exception):
    """The parent process, which sent the request, is gone."""


class _Child:
    """Monitors an item's process and its descendants, and kills those that are left at the end.

    Args:
        pid: the process.
        deadline: when it must be done.
        memory: the memory limit of the process and its descendants, in bytes.
        spared: children of this process that do not belong to the item.
    """

    def __init__(self, pid: int, deadline: float, memory: int, spared: Collection[int]) -> None:
        self.peak = 0
        self._pid = pid
        self._deadline = deadline
        self._memory = memory
        self._spared = spared

    def wait(self) -> tuple[str, str] | None:
        """Wait until it exits or exceeds a limit; return a status and the reason if there is no result.

        Raises:
            _ParentGone: nobody waits for the result any more.
        """
        try:
            return self._watch()
        finally:
            self._end()

    def _watch(self) -> tuple[str, str] | None:
        start = time.monotonic()
        for look in range(sys.maxsize):
            ended, code, usage = os.wait4(self._pid, os.WNOHANG)
            if ended:
                self.peak = max(self.peak, peak_memory(usage))  # the system's own measurement is more precise
                return self._verdict(os.waitstatus_to_exitcode(code))
            held = self._held(look % _FAMILY_EVERY == 0)
            self.peak = max(self.peak, held)
            if held > self._memory:
                return (
                    "memory",
                    f"it used {held / 1e9:.1f} GB, above its limit of {self._memory / 1e9:.1f} GB",
                )
            if time.monotonic() > self._deadline:
                return "timeout", f"it ran for more than {self._deadline - start:.0f} s"
            if _parent_is_gone():
                raise _ParentGone
            time.sleep(_INTERVAL)
        raise AssertionError("unreachable")

    def _verdict(self, code: int) -> tuple[str, str] | None:
        if code == 0:
            return None
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            return "crashed", f"its process was killed by {name}"
        return "crashed", f"its process exited with code {code} before it returned a result"

    def _held(self, with_family: bool) -> int:
        """Return the memory of the process, or with `with_family` that of its descendants too."""
        return memory_held(self._pid, descendants(os.getpid(), self._spared) if with_family else ())

    def _end(self) -> None:
        """Kill what is left: the process, its group, and descendants that left the group or were orphaned."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        end_descendants(os.getpid(), self._spared)


def _parent_is_gone() -> bool:
    """Return whether the parent is gone: only then, at its end, is standard input readable during an item."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    main()
