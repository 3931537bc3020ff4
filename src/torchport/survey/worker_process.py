"""A process that runs items one after another, each in a child of its own: the side that runs them.

It imports torch once and forks for each item, so that an item's process begins in milliseconds, and whatever
an item does to its process is gone with it. It has no threads: a fork leaves nothing locked behind. Where a
fork is not safe, an item's process is a new one, which takes the seconds of an import of torch.
Requests come as lines of JSON on standard input, answers go as lines of JSON to standard output.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

from torchport.capture import capture_graphs
from torchport.errors import SurveyError, one_line
from torchport.records import JSON
from torchport.survey.process_family import (
    adopt_orphans,
    descendants,
    end_descendants,
    memory_held,
)
from torchport.survey.run_item import run_item
from torchport.survey.stat.op_rows import rows_of
from torchport.survey.stat.raw_file import import_duckdb
from torchport.survey.system import end_with_parent, forks_safely, peak_memory
from torchport.survey.work_item import LIBRARIES, WorkItem
from torchport.survey.worker import READY
from torchport.zoo.extras import import_library

_INTERVAL = 0.02  # seconds between looks at a child
_FAMILY_EVERY = 10  # looks between those at the child's own children: finding them takes longer
_ITEM, _RESULT = "item.json", "result.json"


def main() -> None:
    """Serve requests until standard input is closed; or run the one item that a folder holds."""
    if len(sys.argv) > 1:
        _run_item_in(Path(sys.argv[1]))
        return
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever models and libraries print is no answer
    adopt_orphans()
    _prepare()
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _serve(request, answers)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class _Usual(nn.Module):
    """What is usual in models: how an op is traced is looked up when it is first met, and takes its time."""

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
        """Return a few numbers."""
        image = self.image(image)
        image = torch.cat([image, image * self.gate(image)], dim=1).chunk(2, dim=1)[0] + image
        tokens = image.flatten(2).permute(2, 0, 1).contiguous()
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        result: torch.Tensor = self.head(tokens).softmax(dim=-1).mean(dim=0)
        return result


def _prepare() -> None:
    """Import and have torch look up, once for all children, what nearly every model needs."""
    torch.set_num_threads(1)  # more would be threads, which a fork does not take along
    with contextlib.suppress(SurveyError):  # the item that needs it says so
        import_duckdb()
    with torch.device("meta"):
        model, image = _Usual().eval(), torch.ones(1, 3, 16, 16)
    capture_graphs(model, (image,), backward=True)
    capture_graphs(model, (image,))
    rows = rows_of("usual", capture_graphs(model, (image,), backward=True))
    assert sum(1 for _ in rows)


def _serve(request: dict[str, JSON], answers: TextIO) -> dict[str, JSON]:
    item = WorkItem.from_json(request["item"])
    _import_library(item)
    folder = Path(str(request["folder"]))
    start = time.monotonic()
    spared = {process.pid for process in descendants(os.getpid())}
    pid = _fork(item, folder, answers) if forks_safely() else _spawn(item, folder)
    child = _Child(pid, start + float(str(request["seconds"])), int(str(request["memory"])), spared)
    try:
        verdict = child.wait()
    except _NobodyAsks:
        shutil.rmtree(str(request["temporary"]), ignore_errors=True)  # who would have removed it is gone
        sys.exit(0)
    answer: dict[str, JSON] = {"seconds": time.monotonic() - start, "peak_bytes": child.peak}
    if verdict is None:
        found = _read_result(folder)
        if found is not None:
            return answer | found
        verdict = ("crashed", "its process ended by itself with exit code 0 before it gave a result")
    status, error = verdict
    return answer | {"status": status, "error": error}


def _read_result(folder: Path) -> dict[str, JSON] | None:
    """Return what an item's process left as its result; nothing if it left before."""
    result = folder / _RESULT
    try:
        found: dict[str, JSON] = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    result.unlink()
    return found


def _fork(item: WorkItem, folder: Path, answers: TextIO) -> int:
    gc.collect()
    gc.freeze()  # a collection in the child would touch, and so copy, every object's page
    pid = os.fork()
    if pid == 0:
        _be_child(lambda: _run(item, folder), answers)
    return pid


def _spawn(item: WorkItem, folder: Path) -> int:
    (folder / _ITEM).write_text(json.dumps(item.to_json()), encoding="utf-8")
    command = [sys.executable, "-m", "torchport.survey.worker_process", str(folder)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    child.returncode = 0  # it is `_Child` that waits for it, not this object
    return child.pid


def _run_item_in(folder: Path) -> None:
    end_with_parent()
    item = WorkItem.from_json(json.loads((folder / _ITEM).read_text(encoding="utf-8")))
    (folder / _ITEM).unlink()  # what stays there is the item's result
    _run(item, folder)


def _import_library(item: WorkItem) -> None:
    library = LIBRARIES.get(item.model.partition(":")[0])
    if library is not None and "::" not in item.model:
        with contextlib.suppress(Exception):  # the child says what is wrong with it
            import_library(library)


def _be_child(work: Callable[[], None], answers: TextIO) -> None:
    """Run an item's work as the child that this process is now, and end."""
    code = 1
    try:
        os.setsid()  # it is ended with all that it started
        end_with_parent()
        os.close(answers.fileno())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        work()
        code = 0
    finally:
        os._exit(code)


def _run(item: WorkItem, folder: Path) -> None:
    """Do an item's work and leave its result in the folder."""
    found: dict[str, JSON]
    try:
        found = {"row": run_item(item, folder).to_json()}
    except MemoryError as error:
        found = {"status": "memory", "error": f"it asked for more memory than there is: {one_line(error)}"}
    except BaseException as error:  # noqa: BLE001  # a model may raise anything; that costs its own row
        found = {"status": "raised", "error": one_line(error), "no_space": _is_full(error)}
    (folder / _RESULT).write_text(json.dumps(found), encoding="utf-8")


def _is_full(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in str(cause):
            return True
        cause = cause.__cause__
    return False


class _NobodyAsks(Exception):
    """Who asked for the item is gone."""


class _Child:
    """An item's process and all that it starts, watched; none of them outlives it.

    Args:
        pid: the process.
        deadline: when it must be done.
        memory: how many bytes they may hold.
        spared: processes of this one that are none of the item's.
    """

    def __init__(self, pid: int, deadline: float, memory: int, spared: Collection[int]) -> None:
        self.peak = 0
        self._pid = pid
        self._deadline = deadline
        self._memory = memory
        self._spared = spared

    def wait(self) -> tuple[str, str] | None:
        """Wait until it ends or must be ended; return a status and the reason if there is no result.

        Raises:
            _NobodyAsks: nobody waits for the result any more.
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
                self.peak = max(self.peak, peak_memory(usage))  # the system's own note is finer than ours
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
            if _nobody_asks():
                raise _NobodyAsks
            time.sleep(_INTERVAL)
        raise AssertionError("unreachable")

    def _verdict(self, code: int) -> tuple[str, str] | None:
        if code == 0:
            return None
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            return "crashed", f"its process was killed by {name}"
        return "crashed", f"its process ended by itself with exit code {code} before it gave a result"

    def _held(self, with_family: bool) -> int:
        """Return the memory that the process holds, and now and then that of all it started too."""
        return memory_held(self._pid, descendants(os.getpid(), self._spared) if with_family else ())

    def _end(self) -> None:
        """End whatever is left: the process, its group, and those that left the group or were orphaned."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        end_descendants(os.getpid(), self._spared)


def _nobody_asks() -> bool:
    """Whether who asked is gone: standard input is then at its end, though nothing more is expected of it."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    main()
