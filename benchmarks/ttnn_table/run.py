"""Runs the rows of torch_ttnn's results table on the ttnn target: the rows of docs/results/ttnn.md.

    python benchmarks/ttnn_table/run.py                      # the rows that are not done yet
    python benchmarks/ttnn_table/run.py --only 'vgg*' --again

Each row runs in a process of its own, with a limit of time and memory, and its record is written when it is
done: a run that is stopped goes on where it was. At the end the page is written, `docs/results/ttnn.md`.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import multiprocessing
import resource
import time
from pathlib import Path

from page import write_page

from torchport.bringup import BenchSettings, run_benches
from torchport.records import BenchRecord, file_name, read_record, write_record

HERE = Path(__file__).parent
TARGET = "ttnn"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path("out/ttnn-table"), help="where records go")
    parser.add_argument("--only", default="*", help="a pattern of rows' names")
    parser.add_argument("--again", action="store_true", help="run rows that are done, too")
    parser.add_argument("--seconds", type=float, default=300, help="the limit of a row")
    parser.add_argument(
        "--gigabytes", type=float, default=8, help="likewise; of memory beyond the libraries'"
    )
    parser.add_argument("--hours", type=float, default=1, help="begin no row after so long")
    chosen = parser.parse_args()
    end = time.monotonic() + 3600 * chosen.hours
    for name in rows(chosen.only):
        record = chosen.directory / "bench" / file_name(name, TARGET)
        if time.monotonic() > end:
            break
        if record.exists() and not chosen.again:
            continue
        began = time.monotonic()
        run_row(name, chosen.directory, chosen.seconds, chosen.gigabytes)
        done = read_record(record, BenchRecord)
        took = f"({time.monotonic() - began:.0f} s)"
        print(
            f"{name}: {done.status}, {done.ops_remain} left, PCC {done.pcc} {done.error} {took}", flush=True
        )
    write_page(chosen.directory)


def rows(pattern: str) -> list[str]:
    """Return the names of the evaluation rows that can be run, in the table's order."""
    from models import ABSENT, GENERATING, LARGE

    with (HERE / "upstream.csv").open(encoding="utf-8") as file:
        found = [row["name"] for row in csv.DictReader(file) if row["mode"] == "eval"]
    left_out = {*ABSENT, *GENERATING, *LARGE}
    return [name for name in found if name not in left_out and fnmatch.fnmatch(name, pattern)]


def run_row(name: str, directory: Path, seconds: float, gigabytes: float) -> None:
    """Run one row in a process of its own; whatever ends it, there is a record."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(name, directory, gigabytes))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        problem = f"it takes more than {seconds:.0f} s"
    elif process.exitcode:
        problem = f"the process ended with {process.exitcode}, with a limit of {gigabytes:g} GB"
    else:
        return
    write_record(
        BenchRecord(name, TARGET, "failed", error=problem), directory / "bench" / file_name(name, TARGET)
    )


def _run(name: str, directory: Path, gigabytes: float) -> None:
    from models import load

    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + int(gigabytes * 1e9),) * 2)
    run_benches(
        [name], targets=[TARGET], directory=directory, load=load, settings=BenchSettings(runs=1, warmup=0)
    )


if __name__ == "__main__":
    main()
