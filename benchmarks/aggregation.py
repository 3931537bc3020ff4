"""Measures the report of large surveys: its time and memory, and whether its time grows linearly.

    python benchmarks/aggregation.py
    python benchmarks/aggregation.py --models 300 1000 --rounds 1

Makes surveys of raw files with 1,000 ops each, and reports each in a fresh process: all CSV files and plots.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import median, render_table, write_results
from raw_files import OPS, write_survey

TIME_LIMIT = 60.0  # seconds, for the largest
MEMORY_LIMIT = 2e9  # bytes
GROWTH_LIMIT = 1.3  # time per file of the largest survey, relative to the smallest

_REPORT = """
import json, sys, time
begin = time.perf_counter()
from pathlib import Path
from torchport.report import read_survey, write_survey_report
survey = read_survey(Path(sys.argv[1]))
read = time.perf_counter()
written = write_survey_report(survey, Path(sys.argv[1]))
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({
    "read": read - begin, "total": time.perf_counter() - begin, "files": len(written),
    "ops": sum(op.count for op in survey.ops), "unique": len({op.op for op in survey.ops}),
    "problems": len(survey.problems), "memory": 1024 * int(peak),
    "processor": time.process_time(),
}))
"""


def smaller_survey(whole: Path, models: int, directory: Path) -> Path:
    """Make a survey of the first models of another one, sharing its files."""
    for folder in ("raw", "rows"):
        (directory / folder).mkdir(parents=True)
        for path in sorted((whole / folder).iterdir())[:models]:
            os.link(path, directory / folder / path.name)
    return directory


def measure(directory: Path) -> dict[str, float]:
    """Report a survey in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _REPORT, str(directory)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, nargs="+", default=[1000, 3000, 10000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="keep the raw files here, or use those that are here")
    arguments = parser.parse_args()
    sizes = sorted(arguments.models)
    # On the same file system, so that the smaller surveys can share the largest one's files.
    with tempfile.TemporaryDirectory(dir=arguments.dir.parent if arguments.dir else None) as name:
        whole = arguments.dir or Path(name) / "whole"
        if not whole.exists():
            begin = time.perf_counter()
            write_survey(whole, sizes[-1])
            print(f"made {sizes[-1]:,} raw files in {time.perf_counter() - begin:.0f} s", flush=True)
        surveys = {size: smaller_survey(whole, size, Path(name) / str(size)) for size in sizes}
        runs: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
        for _ in range(arguments.rounds):
            for size, directory in surveys.items():
                runs[size].append(measure(directory))
    total = {size: median([run["total"] for run in runs[size]]) for size in sizes}
    read = {size: median([run["read"] for run in runs[size]]) for size in sizes}
    memory = {size: max(run["memory"] for run in runs[size]) for size in sizes}
    rows = [
        [f"{size:,}", f"{read[size]:.1f}", f"{total[size]:.1f}",
         f"{median([run['processor'] for run in runs[size]]):.1f}", f"{1000 * read[size] / size:.2f}",
         f"{memory[size] / 1e6:.0f}", f"{runs[size][0]['ops']:,.0f}", f"{runs[size][0]['unique']:.0f}"]
        for size in sizes
    ]  # fmt: skip
    header = [
        "raw files",
        "aggregate, s",
        "with files, s",
        "processor, s",
        "aggregate, ms a file",
        "MB",
        "ops",
        "unique",
    ]
    print(render_table(header, rows))
    largest, smallest = sizes[-1], sizes[0]
    checks = {
        f"seconds for {largest:,} files": (total[largest], TIME_LIMIT),
        "GB at most": (memory[largest] / 1e9, MEMORY_LIMIT / 1e9),
        "times as long a file as in the smallest survey": (
            read[largest] / largest / (read[smallest] / smallest), GROWTH_LIMIT,
        ),
    }  # fmt: skip
    right = all(run["ops"] == OPS * size and not run["problems"] for size in sizes for run in runs[size])
    print(f"{'✅' if right else '❌'} every op counted")
    for what, (figure, limit) in checks.items():
        print(f"{'✅' if figure <= limit else '❌'} {figure:.2f} {what} (at most {limit:g})")
    print(write_results("aggregation", {"runs": runs}))
    return 0 if right and all(figure <= limit for figure, limit in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
