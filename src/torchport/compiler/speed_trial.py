"""Times built islands against eager torch on the example inputs, and finds the ops that make one slower.

An island counts as slower only if that is beyond doubt: its fastest of several runs, interleaved with eager
torch's, takes clearly longer than eager's median. The results are kept in the cache, for this machine. A busy
machine slows both down, but an engine with more threads may suffer more: if ops are slower while other
processes compete for the processors, that is not kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy
import torch
from torch import fx

from torchport.compiler import cache
from torchport.compiler.outline import Piece
from torchport.errors import RecordError
from torchport.records import Verdict
from torchport.targets import Artifact, Options, Target
from torchport.targets.machine import machine
from torchport.targets.node_by_node import NodeByNode
from torchport.targets.size_terms import is_size
from torchport.targets.target import OutOfRange, Runner

_log = logging.getLogger(__name__)

# From this many runs on, an island is slower if it takes this many times as long as eager torch.
_RATIOS = ((10, 1.05), (5, 1.1), (0, 1.3))
_LEAST = 5e-4  # and if it loses at least this many seconds
_TURNS, _MORE_TURNS = 3, 7
_SHARE = 0.1  # time budget as a share of the compile time so far; twice that to confirm a slowdown
_MUCH = 4  # eager torch is stopped once it takes this many times as long as the island
_CULPRIT = 0.1  # an op is at fault if it accounts for this share of an island's lost time,
_CULPRIT_RATIO = 1.3  # and takes this many times as long as in eager torch: one op's time is less certain
# The machine is busy if a thread is preempted this often in each second that it computes. An idle system does
# so a few times; another process that computes does so every few milliseconds.
_MOST_PREEMPTIONS = 50


@dataclass(frozen=True, slots=True)
class Speed:
    """An island's times.

    Args:
        seconds: the fastest run on the target.
        eager: the median of eager torch.
        runs: the number of runs of each.
    """

    seconds: float
    eager: float
    runs: int = 10

    @property
    def is_slower(self) -> bool:
        """Whether the island takes clearly longer than eager torch."""
        ratio = next(ratio for runs, ratio in _RATIOS if self.runs >= runs)
        return self.seconds > ratio * self.eager and self.seconds - self.eager > _LEAST

    def verdict(self, what: str, target: str) -> Verdict:
        """Return the verdict that keeps `what` on the host."""
        times = f"{1e3 * self.seconds:.2f} ms on {target}, {1e3 * self.eager:.2f} ms in eager torch"
        return Verdict(False, "slower", f"{what} takes {times}")


_before: ContextVar[Callable[[], None]] = ContextVar("_before", default=lambda: None)  # has no state


@contextmanager
def before_timing(wait: Callable[[], None]) -> Iterator[None]:
    """Set a function that is called before islands are timed; it may wait until nothing else runs."""
    token = _before.set(wait)
    try:
        yield
    finally:
        _before.reset(token)


@dataclass(slots=True)
class Spent:
    """The total time of speed trials, in seconds."""

    seconds: float = 0.0


_spent: ContextVar[Spent | None] = ContextVar("_spent", default=None)


@contextmanager
def noting_time() -> Iterator[Spent]:
    """Record how long the speed trials within the context take."""
    spent = Spent()
    token = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(token)


def is_wanted(target: Target, options: Options) -> bool:
    """Whether islands are timed: not if the target is only simulated, nor if TORCHPORT_SPEED_TRIAL is 0."""
    return target.is_timed and options.speed_trial and os.environ.get("TORCHPORT_SPEED_TRIAL") != "0"


def find_slow_ops(
    piece: Piece,
    run: Runner,
    key: str,
    target: Target,
    options: Options,
    values: Mapping[fx.Node, object],
    compiled_for: float,
) -> dict[fx.Node, Verdict]:
    """Return verdicts on the ops to keep on the host because the island is slower than eager torch.

    Args:
        piece: the island.
        run: runs it.
        key: its key in the cache; empty if it is not cached.
        target, options: what it was built for.
        values: the values of its inputs.
        compiled_for: how many seconds compiling took so far.
    """
    arguments: list[torch.Tensor] = [values[node] for node in piece.inputs]  # type: ignore[misc]  # by the verdicts
    note = hashlib.sha256(f"speed 4 {key} {machine()}".encode()).hexdigest() if key else ""
    found = _read_note(note, piece) if note else None
    if found is None:
        _before.get()()
        began, computed, preempted = time.perf_counter(), time.process_time(), _preemptions()
        try:
            found = _find(piece, run, target, options, arguments, _SHARE * compiled_for)
        except OutOfRange:
            return {}  # a call with these inputs runs on the host
        finally:
            if (spent := _spent.get()) is not None:
                spent.seconds += time.perf_counter() - began
        most = _MOST_PREEMPTIONS * (time.process_time() - computed)
        is_busy = _preemptions() - preempted > most
        if note and not (found and is_busy):
            _write_note(note, piece, found)
    return found


def _preemptions() -> int:
    """Return how often the system took a processor from a thread of this process; 0 if it does not count."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _find(
    piece: Piece,
    run: Runner,
    target: Target,
    options: Options,
    arguments: Sequence[torch.Tensor],
    allowed: float,
) -> dict[fx.Node, Verdict]:
    began = time.perf_counter()
    with torch.no_grad():
        own = seconds_of(lambda: run(arguments))
    if not _ends_within(piece, arguments, max(allowed, _MUCH * own)):
        return {}
    left = allowed - (time.perf_counter() - began)
    speed = time_in_turns(lambda: run(arguments), lambda: piece.island.graph_module(*arguments), left)
    if not speed.is_slower:
        return {}
    _log.info("%s is slower than eager torch: %s", piece.island.name, speed)
    culprits = _slow_by_profile(piece, speed, target, options, arguments)
    whole = speed.verdict(f"the island of {len(piece.ops)} ops", target.name)
    return culprits or dict.fromkeys(piece.ops, whole)


class _WithDeadline(NodeByNode):
    """Runs an island with eager torch until a deadline."""

    def __init__(self, piece: Piece, end: float) -> None:
        super().__init__(piece.island.graph_module)
        self._end = end

    def run_node(self, n: fx.Node) -> object:
        """Run a node, if there is time left."""
        if time.perf_counter() > self._end:
            raise TimeoutError
        return super().run_node(n)


def _ends_within(piece: Piece, arguments: Sequence[torch.Tensor], seconds: float) -> bool:
    """Whether eager torch runs an island within a time limit; it is stopped at the first op after that.

    In bfloat16 it may take a hundred times as long as an engine, on a processor without bfloat16 support.
    """
    try:
        with torch.no_grad():
            _WithDeadline(piece, time.perf_counter() + seconds).run(*arguments)
    except TimeoutError:
        return False
    return True


def time_in_turns(run: Callable[[], object], eager: Callable[[], object], allowed: float) -> Speed:
    """Time two functions in turns; more often if the first seems to be slower.

    Args:
        run, eager: what to time.
        allowed: the approximate time budget in seconds; twice that, or three turns, to confirm a slowdown.
    """
    own: list[float] = []
    theirs: list[float] = []
    with torch.no_grad():
        began = time.perf_counter()
        for _ in range(_TURNS):
            theirs.append(seconds_of(eager))
            own.append(seconds_of(run))
            if time.perf_counter() - began > allowed:
                break
        if Speed(min(own), min(theirs)).is_slower:
            for _ in range(_MORE_TURNS):
                theirs.append(seconds_of(eager))
                own.append(seconds_of(run))
                late = time.perf_counter() - began > 2 * allowed and len(own) >= _TURNS
                if late or not Speed(min(own), min(theirs)).is_slower:
                    break
    return Speed(min(own), statistics.median(theirs), len(own))


def seconds_of(call: Callable[[], object]) -> float:
    """Call once and return how many seconds it took, including work on a GPU."""
    on_gpu = torch.cuda.is_initialized()
    if on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _slow_by_profile(
    piece: Piece, speed: Speed, target: Target, options: Options, arguments: Sequence[torch.Tensor]
) -> dict[fx.Node, Verdict]:
    """Return the ops at fault according to the engine's profiler; empty if it has none, or finds none."""
    try:
        times = target.op_times(piece.island, options, arguments)
    except Exception as error:  # noqa: BLE001  # an engine may raise anything; the island stays on the host
        _log.info("%s cannot be profiled: %s", piece.island.name, error)
        return {}
    places = nodes_by_name(piece)
    taken: dict[fx.Node, float] = {}
    kernels: dict[fx.Node, str] = {}
    for entry in times or ():
        if entry.node in places:
            node = places[entry.node]
            taken[node] = taken.get(node, 0.0) + entry.seconds
            kernels[node] = entry.kernel if entry.is_reference else kernels.get(node, entry.kernel)
    eager = _eager_times(piece, arguments)
    found = {}
    for node, seconds in taken.items():
        alone = Speed(seconds, eager.get(node, 0.0))
        if (
            seconds - alone.eager > _CULPRIT * (speed.seconds - speed.eager)
            and seconds > _CULPRIT_RATIO * alone.eager
        ):
            found[node] = alone.verdict(f"{node.target} (kernel {kernels[node]})", target.name)
    return found


def nodes_by_name(piece: Piece) -> dict[str, fx.Node]:
    """Return the model's nodes by their names in the island."""
    copies = _calls(piece)
    return {copy.name: node for copy, node in zip(copies, piece.nodes, strict=True)}


class _Timer(NodeByNode):
    """Runs an island with eager torch and records how long each op takes."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece.island.graph_module)
        self.seconds: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and record its time."""
        began = time.perf_counter()
        value = super().run_node(n)
        self.seconds[n.name] = min(self.seconds.get(n.name, float("inf")), time.perf_counter() - began)
        return value


def _calls(piece: Piece) -> list[fx.Node]:
    """Return the nodes of an island's own graph that correspond to the piece's, in order."""
    nodes = piece.island.graph_module.graph.nodes
    return [node for node in nodes if node.op == "call_function" and not is_size(node)]


def _eager_times(piece: Piece, arguments: Sequence[torch.Tensor]) -> dict[fx.Node, float]:
    timer = _Timer(piece)
    with torch.no_grad():
        for _ in range(_TURNS):
            timer.run(*arguments)
    copies = _calls(piece)
    return {node: timer.seconds[copy.name] for copy, node in zip(copies, piece.nodes, strict=True)}


def _write_note(note: str, piece: Piece, found: Mapping[fx.Node, Verdict]) -> None:
    slow = {str(piece.nodes.index(node)): verdict.to_json() for node, verdict in found.items()}
    cache.write(note, Artifact(numpy.zeros(0, dtype=numpy.uint8), {"slow": slow}))


def _read_note(note: str, piece: Piece) -> dict[fx.Node, Verdict] | None:
    """Return the cached verdicts from this machine; None if there are none."""
    kept = cache.read(note)
    slow = None if kept is None else kept.properties.get("slow")
    if not isinstance(slow, dict):
        return None
    nodes = {str(index): node for index, node in enumerate(piece.nodes)}
    if not slow.keys() <= nodes.keys():
        return None
    try:
        return {nodes[place]: Verdict.from_json(verdict) for place, verdict in slow.items()}
    except RecordError:  # the note was damaged
        return None
