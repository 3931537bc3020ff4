"""Runs the rows of torch_ttnn's results table on the ttnn target: the rows of docs/results/ttnn.md.

    python benchmarks/ttnn_table/run.py                      # the rows that are not done yet
    python benchmarks/ttnn_table/run.py --only 'vgg*' --again
    python benchmarks/ttnn_table/run.py --page               # only write the page

First every row's model is explained, then the rows are run, the smallest first, then those in training, and
finally Tenstorrent's own library checks the programs of each, if `make ttnn-mock` has built it.
Each runs in its own process, with time and memory limits, and its record is written when it is
done: an interrupted run resumes, and rows whose records are kept beside the page count as done.
The page, `docs/results/ttnn.md`, is written after each.

Three rows need packages that torchport does not: `pip install --no-deps pytorchcv diffusers`.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import math
import multiprocessing
import multiprocessing.context
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from page import read, write_page
from rows import Explained, Judged, Placed, Trained, reasons, upstream

from torchport.bringup import BenchSettings, run_benches
from torchport.records import BenchRecord, Coverage, file_name, read_record, write_record
from torchport.records.record import Record

TARGET = "ttnn"
_WAITED = 10  # wall-clock limit relative to that of processor time: other programs may be running
_LOOK = 0.5  # seconds between checks of a row's memory


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work on a row.

    Args:
        folder: where its records go.
        record: their class.
        run: does the work for a name, and writes the record into a directory.
        failed: makes the record for a name and the reason why there is no result.
    """

    folder: str
    record: type[Record]
    run: Callable[[str, Path], None]
    failed: Callable[[str, str], Record]


def main() -> None:
    """Run the requested work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path("out/ttnn-table"), help="where records go")
    parser.add_argument("--only", default="*", help="a pattern of rows' names")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="some of the work alone")
    parser.add_argument("--again", action="store_true", help="run rows that are done, too")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page")
    parser.add_argument("--seconds", type=float, default=300, help="the limit of a row, of processor time")
    parser.add_argument("--gigabytes", type=float, default=8, help="likewise, of memory that is no file's")
    parser.add_argument("--hours", type=float, default=1, help="begin no row after so long")
    chosen = parser.parse_args()
    end = time.monotonic() + 3600 * chosen.hours
    for kind, name in [] if chosen.page else work(chosen.only, chosen.kind or list(KINDS)):
        record = chosen.directory / KINDS[kind].folder / file_name(name, TARGET)
        if time.monotonic() > end:
            break
        if not chosen.again and (record.exists() or is_kept(kind, name)):
            continue
        began = time.monotonic()
        run_row(kind, name, chosen.directory, chosen.seconds, chosen.gigabytes)
        print(_line(kind, read_record(record, KINDS[kind].record), time.monotonic() - began), flush=True)
        write_page(chosen.directory)
    write_page(chosen.directory)


def work(pattern: str, kinds: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what remains to be done: kinds of work and names of rows."""
    from models import ABSENT, BROKEN, GENERATING

    rows = [row for row in upstream() if row["name"] not in ABSENT and fnmatch.fnmatch(row["name"], pattern)]
    evaluated = [row["name"] for row in rows if row["mode"] == "eval"]
    if "explain" in kinds:
        counts = {row["name"]: int(row["ops_before"]) for row in rows}
        few_first = sorted(evaluated, key=counts.__getitem__)
        yield from (("explain", name) for name in few_first if name not in BROKEN)
    explained = read(Explained)  # only now, when they exist: the order of runs depends on them

    def size(name: str) -> float:
        found = explained.get(name.removesuffix("-train"))
        if found is None or not found.flops:
            return float("inf")
        return found.flops * GENERATING.get(name, 1)

    trained = [row["name"] for row in rows if row["mode"] == "train"]
    for kind, names in (("explain-train", trained), ("bench", evaluated), ("train", trained)):
        if kind in kinds:
            yield from ((kind, name) for name in sorted(names, key=size))
    if "judge" in kinds and _can_judge():
        counts = {row["name"]: int(row["ops_before"]) for row in rows}  # each is a call or more
        yield from (
            ("judge", name)
            for names in (evaluated, trained)
            for name in sorted(names, key=counts.__getitem__)
        )


def _can_judge() -> bool:
    """Whether the real library with its mock chip is there; if not, it says so."""
    from judge_row import has_mock_chip

    if not has_mock_chip():
        print("judge: the real library with a mock chip is not here; `make ttnn-mock` builds it on x86-64")
        return False
    return True


def is_kept(kind: str, name: str) -> bool:
    """Whether a row's result is among the records beside the page; failures do not count."""
    found = read(KINDS[kind].record).get(name)
    if isinstance(found, Trained) and kind == "train":
        return found.pcc is not None
    if isinstance(found, Judged):
        return found.programs is not None
    return isinstance(found, (Explained, BenchRecord, Trained)) and found.ops_before is not None


def run_row(kind: str, name: str, directory: Path, seconds: float, gigabytes: float) -> None:
    """Do the work for one row in its own process; however it ends, there is a record."""
    process = _context().Process(target=_run, args=(kind, name, directory, seconds))
    process.start()
    end = time.monotonic() + _WAITED * seconds
    problem = ""
    while process.exitcode is None and not problem:
        process.join(_LOOK)
        if sum(map(_memory, _family(process.pid))) > gigabytes * 1e9:
            problem = f"it takes more than {gigabytes:g} GB"
        elif time.monotonic() > end:
            problem = f"it takes more than {seconds:.0f} s"
    for member in _family(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.join()
    if process.exitcode == -signal.SIGXCPU:
        problem = f"it takes more than {seconds:.0f} s"
    elif process.exitcode and not problem:
        problem = f"the process ended with {process.exitcode}"
    if problem:
        found = KINDS[kind]
        write_record(found.failed(name, problem), directory / found.folder / file_name(name, TARGET))


def _family(process: int | None) -> list[int]:
    """Return a process and its descendants, while it runs."""
    found = [] if process is None else [process]
    for each in found:
        with contextlib.suppress(OSError):  # it has ended
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text("utf-8").split())
    return found


def _memory(process: int) -> int:
    """Return how many bytes of a process's memory are not backed by a file."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0  # it has ended
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@functools.cache
def _context() -> multiprocessing.context.ForkServerContext:
    """Return a context that starts processes as copies of one that has imported the libraries."""
    here = str(Path(__file__).parent)  # the copied process would not know it otherwise
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    return context


def _run(kind: str, name: str, directory: Path, seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
    KINDS[kind].run(name, directory)


def _explain(name: str, directory: Path) -> None:
    from explain_rows import explain_row

    write_record(explain_row(name), directory / "explained" / file_name(name, TARGET))


def _bench(name: str, directory: Path) -> None:
    from models import BROKEN, GENERATING, load_to_run, options_of

    if name in BROKEN:
        from graph_row import run_graphs

        row, placed = run_graphs(name)
        write_record(placed, directory / "placed" / file_name(name, TARGET))
        write_record(row, directory / "bench" / file_name(name, TARGET))
        return
    settings = BenchSettings(runs=1, warmup=0, new_tokens=GENERATING.get(name, 0))
    run_benches(
        [name],
        targets=[TARGET],
        directory=directory,
        options={TARGET: options_of(name)},
        load=load_to_run,
        settings=settings,
    )
    coverage = directory / "coverage" / file_name(name, TARGET)
    if coverage.exists():
        found = read_record(coverage, Coverage)
        placed = Placed(name, found.inputs, found.outputs, reasons([found]))
        write_record(placed, directory / "placed" / file_name(name, TARGET))


def _explain_training(name: str, directory: Path) -> None:
    from train_row import explain_training

    write_record(explain_training(name), directory / "trained_explained" / file_name(name, TARGET))


def _train(name: str, directory: Path) -> None:
    from train_row import train_row

    write_record(train_row(name), directory / "trained" / file_name(name, TARGET))


def _judge(name: str, directory: Path) -> None:
    from judge_row import judge_row

    write_record(judge_row(name), directory / "judged" / file_name(name, TARGET))


def _bench_failed(name: str, problem: str) -> BenchRecord:
    return BenchRecord(name, TARGET, "failed", error=problem)


KINDS = {
    "explain": Kind("explained", Explained, _explain, lambda name, why: Explained(name, error=why)),
    "bench": Kind("bench", BenchRecord, _bench, _bench_failed),
    "explain-train": Kind(
        "trained_explained", Trained, _explain_training, lambda name, why: Trained(name, error=why)
    ),
    "train": Kind("trained", Trained, _train, lambda name, why: Trained(name, error=why)),
    "judge": Kind("judged", Judged, _judge, lambda name, why: Judged(name, error=why)),
}


def _line(kind: str, done: Record, seconds: float) -> str:
    if isinstance(done, Judged):
        judged = f"{done.accepted} of {done.programs} accepted {'; '.join(done.refusals)}"
        return f"{kind} {done.model}: {judged} {done.error} ({seconds:.0f} s)"
    assert isinstance(done, (Explained, BenchRecord, Trained))
    pcc = "" if isinstance(done, Explained) else f", PCC {done.pcc}"
    left = f"{done.ops_remain} of {done.ops_before} left"
    return f"{kind} {done.model}: {left}{pcc} {done.error} ({seconds:.0f} s)"


if __name__ == "__main__":
    main()
