"""Tries every engine on a model, each in its own process, and ranks them.

An engine that crashes, hangs or exhausts memory only loses its own turn. Engines build in parallel and are
timed one by one (`engine_processes.py`). The results are kept in the cache, for this machine. To be robust on
a busy machine, engines are compared by the ratio of their time to that of eager torch in the same process,
where both are timed in turns.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import numpy
import torch

from torchport import targets
from torchport.capture import CapturedModel
from torchport.compiler import cache
from torchport.compiler.engine_processes import LOG, Bounds, at_a_time, run_trials
from torchport.errors import RecordError, TargetError, nearest, one_line
from torchport.records import EAGER, EngineTry, Tries, read_record, temporary_folder
from torchport.targets import Artifact, Options, Target
from torchport.targets.auto import AutoOptions
from torchport.targets.child_process import ChildEnd
from torchport.targets.machine import machine
from torchport.targets.permitted_ops import namespaces_of
from torchport.version import __version__

_log = logging.getLogger(__name__)

# The files of a trial: the request, the model, its inputs, and the results.
REQUEST, PROGRAM, INPUTS = "request.json", "program.pt2", "inputs.pt"
FOUND, FOUND_EAGER = "found.json", "found_eager.json"

_NOISE = 0.03  # share of the best time within which two engines count as equally good
_LITTLE = 32 * 2**20  # bytes, the same for memory
_LEAST = 1.0  # seconds of the budget that must be left to start an engine
_BUILDING = 2 / 3  # share of their time that engines which build in parallel may spend on building


class ChoiceProgress:
    """Receives progress for each engine; the methods do nothing unless they are overridden."""

    def trying(self, engine: str, number: int, engines: int) -> None:
        """Called when an engine's turn begins, with its number among all engines."""

    def timing(self, engine: str) -> None:
        """Called when an engine has been built and its timing begins."""

    def tried(self, row: EngineTry) -> None:
        """Called when an engine's turn is over."""


_progress: ContextVar[ChoiceProgress] = ContextVar("_progress", default=ChoiceProgress())  # noqa: B039  # no state


@contextmanager
def telling(progress: ChoiceProgress) -> Iterator[None]:
    """Report the progress of engine choices made within the context."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def check_engines(options: AutoOptions) -> list[str]:
    """Return the engines to try.

    Raises:
        TargetError: a named engine is not a target, or its timings here are not meaningful.
    """
    known = targets.engines()
    for name in options.engines:
        if name not in known:
            untimed = name in targets.names() and name != "auto"
            raise TargetError(
                f"{name!r} cannot be tried: its timings on this machine are not meaningful"
                if untimed
                else f"no target named {name!r}",
                where="auto",
                remedy=f"engines that can be tried: {', '.join(known)}" if untimed else nearest(name, known),
            )
    return list(dict.fromkeys(options.engines)) or known


def choose_engine(captured: CapturedModel, options: AutoOptions) -> Tries:
    """Try the engines on a captured model and return the result of each.

    Args:
        captured: the model.
        options: how to choose.

    Raises:
        TargetError: a named engine cannot be tried.
    """
    names = check_engines(options)
    key = _key(captured, names, options) if options.cache else ""
    kept = _read_tries(key) if key else None
    if kept is not None:
        _log.info("%s: %s was the best on this machine before", captured.name, kept.chosen)
        return kept
    began = time.monotonic()
    rows = _try_all(captured, names, options, began + options.budget_s)
    tries = Tries(
        captured.name,
        options.objective,
        rank(rows, options.objective)[0].engine,
        tuple(rows),
        machine(),
        time.monotonic() - began,
        {name: version for name in names if (version := targets.find(name).version())},
    )
    if key:
        _write_tries(key, tries)
    return tries


def keep_tries(captured: CapturedModel, options: AutoOptions, tries: Tries) -> None:
    """Update the cached tries with later results: the times of generating."""
    if options.cache:
        _write_tries(_key(captured, check_engines(options), options), tries)


def _write_tries(key: str, tries: Tries) -> None:
    if not any(row.status in ("timeout", "skipped", "crashed", "memory") for row in tries.rows):
        # Not cached otherwise: the machine's load may be the cause, so all are tried again next time.
        cache.write(key, Artifact(numpy.zeros(0, dtype=numpy.uint8), {"tries": tries.to_json()}))


def rank(rows: Sequence[EngineTry], objective: str) -> list[EngineTry]:
    """Return the rows of engines that can run the model, the best first; eager torch is always among them.

    Within the noise of the best, engines with fewer transfers come first; eager torch has none.

    Example:
        >>> fast = EngineTry("b", "ok", 1.0, 2.0, fastest=1.0, eager_fastest=2.0)
        >>> [row.engine for row in rank([EngineTry("eager", "ok", fastest=2.0), fast], "latency")]
        ['b', 'eager']
    """
    able = [row for row in rows if row.status == "ok" and _score(row, objective) is not None]
    if all(row.engine != EAGER for row in able):  # no process lived long enough to time it
        able.append(EngineTry(EAGER, "ok"))
    scores = {row.engine: _score(row, objective) for row in able}
    known = {engine: score for engine, score in scores.items() if score is not None}
    best = min(known.values(), default=0.0)
    limit = best + _LITTLE if objective == "memory" else best * (1 + _NOISE)

    def place(row: EngineTry) -> tuple[bool, float, float]:
        score = known.get(row.engine, float("inf"))
        close = score <= limit
        return not close, float(row.transfers or 0) if close else 0.0, score

    return sorted(able, key=place)


def _score(row: EngineTry, objective: str) -> float | None:
    """Return an engine's score, lower is better; None if it was not measured."""
    if objective == "memory":
        return None if row.memory_bytes is None else float(row.memory_bytes)
    return (1.0 if row.fastest is not None else None) if row.engine == EAGER else row.ratio


def _try_all(
    captured: CapturedModel, names: Sequence[str], options: AutoOptions, deadline: float
) -> list[EngineTry]:
    rows: dict[str, EngineTry] = {}
    with temporary_folder("auto") as folder:
        problem = _write_model(captured, folder)
        left = []
        for name in names:
            reason = _why_unsuitable(targets.find(name), captured)
            if problem or reason:
                rows[name] = EngineTry(name, "failed" if problem else "refused", reason=problem or reason)
                _progress.get().tried(rows[name])
            else:
                left.append(name)
        turns = _Turns(captured, names, folder, options, deadline)
        number, memory = at_a_time(
            len(left), options.memory_mb * 10**6, _weights_bytes(captured), _free_memory()
        )
        while left:
            rows |= turns.try_some(left[:number], len(left), memory)
            left = left[number:]
        shared = number > 1 and not options.memory_mb
        for name in [name for name in names if shared and rows[name].status == "memory"]:
            rows |= turns.try_some([name], 1, _free_memory() // 2)  # again alone: it had to share memory
    return [_eager_row(turns.eager, list(rows.values())), *[rows[name] for name in names]]


class _Turns:
    """Tries engines, several at a time.

    Args:
        captured: the model.
        names: all engines.
        folder: the folder that holds the model.
        options: how to choose.
        deadline: when all trials must be done.
    """

    def __init__(
        self,
        captured: CapturedModel,
        names: Sequence[str],
        folder: Path,
        options: AutoOptions,
        deadline: float,
    ) -> None:
        self._captured = captured
        self._names = names
        self._folder = folder
        self._options = options
        self._deadline = deadline
        self.eager: list[EngineTry] = []  # the measurements of eager torch so far

    def try_some(self, some: Sequence[str], left: int, memory: int) -> dict[str, EngineTry]:
        """Try some engines, which build in parallel, and return their rows.

        Args:
            some: these engines.
            left: how many engines were not tried yet, including these.
            memory: how many bytes each may hold.
        """
        progress = _progress.get()
        for name in some:
            progress.trying(name, self._names.index(name) + 1, len(self._names))
        seconds = self._deadline - time.monotonic()
        rows = {}
        if seconds < _LEAST:
            reason = f"the budget of {self._options.budget_s} s was spent"
            rows = {name: EngineTry(name, "skipped", reason=reason) for name in some}
            for row in rows.values():
                progress.tried(row)
            return rows
        # Part of the time of engines that build in parallel is reserved for timing them one by one.
        share = seconds * len(some) / left * (_BUILDING if len(some) > 1 else 1)
        bounds = Bounds(share, memory)
        folders = [self._prepare(name) for name in some]
        with closing(run_trials(folders, bounds, lambda index: progress.timing(some[index]))) as ends:
            for index, end in ends:
                row = rows[some[index]] = self._read(some[index], folders[index], end, bounds)
                _log.info("%s on %s: %s %s", self._captured.name, row.engine, row.status, row.reason)
                progress.tried(row)
        return rows

    def _prepare(self, name: str) -> Path:
        """Return a folder with the request to an engine's process."""
        request = {
            "engine": name,
            "model": self._captured.name,
            "objective": self._options.objective,
            "options": _common(self._options),
            "threads": torch.get_num_threads(),
            "namespaces": sorted(namespaces_of(self._captured.program.graph) - {"aten", "prim", "prims"}),
            "shared": [dataclasses.asdict(item) for item in self._captured.shared],
        }
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self._folder))
        (folder / REQUEST).write_text(json.dumps(request))
        return folder

    def _read(self, name: str, folder: Path, end: ChildEnd, bounds: Bounds) -> EngineTry:
        """Return an engine's row, and keep its process's measurement of eager torch."""
        eager = _read_row(folder / FOUND_EAGER)
        self.eager += [eager] if eager is not None else []
        row = _read_row(folder / FOUND) if end.how == "exited" and end.code == 0 else None
        if row is None:
            row = _died(name, end, folder / LOG, bounds)
        return replace(row, peak_bytes=end.peak or None)


def _weights_bytes(captured: CapturedModel) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in captured.program.state_dict.values())


def _why_unsuitable(target: Target, captured: CapturedModel) -> str:
    """Return why a target cannot run a model at all; empty if it possibly can."""
    devices = {leaf.device.type for leaf in captured.leaves}
    devices |= {tensor.device.type for tensor in captured.program.state_dict.values()}
    others = sorted(devices - target.device_types)
    return f"it takes no tensors on {', '.join(others)}" if others else ""


def _eager_row(found: Sequence[EngineTry], rows: Sequence[EngineTry]) -> EngineTry:
    """Return eager torch's row: the median of its times in the engines' processes, and the least memory."""
    if not found:
        return EngineTry(EAGER, "ok", reason="no process lived long enough to time it")
    in_turns = [row.eager_seconds for row in rows if row.eager_seconds is not None]
    seconds = statistics.median(in_turns or [row.seconds for row in found if row.seconds is not None])
    memory = [row.memory_bytes for row in found if row.memory_bytes is not None]
    fastest = min(row.fastest for row in found if row.fastest is not None)
    fastest = min([fastest, *[row.eager_fastest for row in rows if row.eager_fastest is not None]])
    return replace(
        found[0],
        seconds=seconds,
        eager_seconds=seconds,
        fastest=fastest,
        eager_fastest=fastest,
        memory_bytes=min(memory, default=None),
    )


def _common(options: AutoOptions) -> dict[str, object]:
    """Return the options that every target has."""
    return {
        field.name: list(value) if isinstance(value := getattr(options, field.name), tuple) else value
        for field in dataclasses.fields(Options)
    }


def engine_options(options: AutoOptions, tries: Tries) -> Mapping[str, object]:
    """Return the options to compile with for the chosen engine."""
    given = _common(options)
    if tries.remembered and not options.child_trial:
        del given["child_trial"]  # it was tried in a child before, but not now: use the engine's default
    return given


def _died(name: str, end: ChildEnd, log: Path, bounds: Bounds) -> EngineTry:
    """Return the row of an engine whose process returned no result."""
    if end.how == "timeout":
        return EngineTry(name, "timeout", reason=f"it took more than its {bounds.seconds:.0f} s")
    if end.how == "memory":
        held, limit = (f"{number / 1e6:,.0f} MB" for number in (end.peak, bounds.memory))
        return EngineTry(name, "memory", reason=f"it held {held}, more than {limit}")
    lines = log.read_text(errors="replace").strip().splitlines()
    said = f", and last said: {lines[-1][:200]}" if lines else ""
    return EngineTry(name, "crashed", reason=f"its process {end}{said}")


def _read_row(path: Path) -> EngineTry | None:
    try:
        return read_record(path, EngineTry)
    except RecordError:
        return None


def _write_model(captured: CapturedModel, folder: Path) -> str:
    """Write the model for other processes; return why that failed, or an empty string."""
    kept = captured.program.example_inputs
    try:
        captured.program.example_inputs = None  # they would be pickled
        torch.export.save(captured.program, folder / PROGRAM)
        torch.save([leaf.detach() for leaf in captured.leaves], folder / INPUTS)
    except Exception as error:  # noqa: BLE001  # torch raises many kinds; the model runs eagerly then
        return f"the model cannot be passed to another process: {one_line(error)}"
    finally:
        captured.program.example_inputs = kept
    return ""


def _free_memory() -> int:
    """Return the free memory in bytes, or the total if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _key(captured: CapturedModel, names: Sequence[str], options: AutoOptions) -> str:
    """Return a digest of what the choice depends on: everything but the values of weights and inputs."""
    digest = hashlib.sha256()
    versions = [(name, targets.find(name).version()) for name in names]
    wanted = [options.objective, _common(options), versions, machine(), __version__, torch.__version__]
    digest.update(json.dumps(["tries 1", *wanted]).encode())
    for node in captured.program.graph.nodes:
        value = node.meta.get("val")
        shown = (
            f"{value.dtype} {tuple(value.shape)} {value.device}" if isinstance(value, torch.Tensor) else ""
        )
        digest.update(f"{node.op} {node.target} {node.args} {node.kwargs} {shown}\n".encode())
    return digest.hexdigest()


def _read_tries(key: str) -> Tries | None:
    kept = cache.read(key)
    if kept is None:
        return None
    try:
        return replace(Tries.from_json(kept.properties.get("tries")), remembered=True)  # type: ignore[arg-type]  # checked there
    except RecordError:
        return None
