"""What the benchmarks share: interleaved timing, tables, and the machine and versions of a measurement."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from torchport.bringup import describe_installation

Call = Callable[[], object]

RESULTS = Path("out/benchmarks")
ABSENT = "-"


@dataclass(frozen=True)
class Turns:
    """How callables are timed against each other.

    Args:
        rounds: how many turns each gets; by default as many as fit into `seconds`.
        seconds: approximate total time if `rounds` is not given; at least five rounds are made.
        burst: the minimum number of timed calls in a turn.
        turn: how many seconds a turn's timed calls continue, if more of them fit.
        settle: seconds of untimed calls before them, at least one call: the previous callable has left the
            caches and the threads in its own state.
        pause: seconds of rest before a turn. A library's threads spin after its last call, some for
            more than 50 ms, and would take a core from the next callable.
    """

    rounds: int | None = None
    seconds: float = 30.0
    burst: int = 3
    turn: float = 0.1
    settle: float = 0.05
    pause: float = 0.15

    def enough(self, done: int, elapsed: float) -> bool:
        """Whether no further round is needed."""
        if self.rounds is not None:
            return done >= self.rounds
        return done >= 5 and elapsed >= self.seconds


def time_in_turns(calls: Mapping[str, Call], turns: Turns) -> dict[str, list[float]]:
    """Time callables in turns, so that other load on the machine affects all of them alike.

    Args:
        calls: what to time, by name.
        turns: how to time it.

    Returns:
        The seconds of each timed call, by name.

    Example:
        >>> sorted(time_in_turns({"a": list, "b": dict}, Turns(rounds=1)))
        ['a', 'b']
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    start = time.perf_counter()
    done = 0
    while names and not turns.enough(done, time.perf_counter() - start):
        # Rotate the order, so that none always follows the same one.
        first = done % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(turns.pause)
            _repeat(calls[name], 1, turns.settle)
            times[name] += _repeat(calls[name], turns.burst, turns.turn)
        done += 1
    return times


def _repeat(call: Call, least: int, seconds: float) -> list[float]:
    """Return the seconds of each of at least `least` calls, continuing for `seconds`."""
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """Return half the interquartile range relative to the median: how noisy the times are."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


def error_of_median(values: Sequence[float]) -> float:
    """Return the standard error of the median, estimated from the interquartile range."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / len(values) ** 0.5


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns; all but the first are right-aligned.

    Example:
        >>> print(render_table(["model", "ms"], [["resnet18", "12.5"]]))
        | model    |   ms |
        |----------|-----:|
        | resnet18 | 12.5 |
    """
    widths = [max(len(line[place]) for line in [header, *rows]) for place in range(len(header))]
    rule = "-" * (widths[0] + 2) + "|" + "|".join("-" * (width + 1) + ":" for width in widths[1:])
    lines = [_line(header, widths), f"|{rule}|", *[_line(row, widths) for row in rows]]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    return (
        "| " + " | ".join([first, *[c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]]) + " |"
    )


def document(name: str, results: Mapping[str, object]) -> dict[str, object]:
    """Return results together with the machine and versions."""
    installation = describe_installation()
    return {
        "schema": f"torchport.benchmark.{name}/1",
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": installation.machine,
        "versions": installation.versions,
        **results,
    }


def write_results(name: str, results: Mapping[str, object]) -> Path:
    """Write results as JSON with the machine and versions, and return where."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(name, results), indent=2) + "\n", encoding="utf-8")
    return path
