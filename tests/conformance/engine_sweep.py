"""Sweeps an engine over torch's own samples of every op, or over small models, in pieces that can be resumed.

    PYTHONPATH=src python tests/conformance/engine_sweep.py ops inductor --device cuda --workers 8 --minutes 9
    PYTHONPATH=src python tests/conformance/engine_sweep.py models inductor --device cuda

Needs only torch and torchport's sources. Workers are processes: if one crashes or hangs, its piece of work is
retried op by op. Results are kept in a JSON file, and finished work is not repeated. The exit code is 1 if
something is wrong, and 2 if nothing is wrong but time ran out.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: a folder there is called packaging

HALF = ("bfloat16", "float16")
READY = "ready\n"


@dataclass(frozen=True)
class Work:
    """A piece of work for one worker.

    Args:
        what: `ops` or `models`.
        names: the names of the ops or the model.
        dtypes: the dtypes in which they are tested.
    """

    what: str
    names: tuple[str, ...]
    dtypes: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its key in the records."""
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{self.names[0]}{more}, {' '.join(self.dtypes)}"

    def split(self) -> list[Work]:
        """Return the work split into single ops."""
        return [Work(self.what, (name,), self.dtypes) for name in self.names]


# ---- in a worker


def check(work: Work, engine: str, device: str) -> list[str]:
    """Do a piece of work, and return the problems found."""
    import torch

    dtypes = [getattr(torch, name) for name in work.dtypes]
    if work.what == "models":
        return [problem for dtype in dtypes for problem in check_model(work.names[0], engine, device, dtype)]
    from conformance.op_samples import OPS, check_together, name_of, samples_of

    wanted = set(work.names)
    samples = [sample for op in OPS if name_of(op) in wanted for sample in samples_of(op, dtypes, device)]
    return check_together(samples, engine)


def check_model(name: str, engine: str, device: str, dtype: object) -> list[str]:
    """Return where a compiled model differs from eager torch, or that too little of it is compiled."""
    import torch

    import torchport
    from conformance.small_models import load
    from torchport.verification import HALVES, coarsest_step, half_difference

    model, given = load(name, device, dtype)
    with torch.no_grad():
        compiled = torchport.compile(
            model,
            (given,),
            target=engine,
            options={"cache": False, "speed_trial": False, "child_trial": False},
        )
        actual, expected = compiled(given), model(given)
        again = compiled(given)
        if dtype in HALVES:
            exact = model.float()(given.float() if given.is_floating_point() else given)
            problem = half_difference(actual, expected, exact, step=coarsest_step([dtype]))
        else:
            close = torch.allclose(actual, expected, rtol=1e-3, atol=1e-3)
            problem = "" if close else f"differs by {(actual - expected).abs().max()}"
    coverage = compiled.coverage
    found = [problem] if problem else []
    found += [] if torch.equal(actual, again) else ["a second call gives something else"]
    refused = not coverage.flops_covered and any(row.reason == "dtype" for row in coverage.stayed)
    if coverage.flops_covered < 0.9 * coverage.flops and not (refused and dtype in HALVES):
        stayed = {f"{row.op}: {row.reason}, {row.detail}" for row in coverage.stayed}
        found.append(f"{coverage.flops_covered} of {coverage.flops} FLOPs are compiled: {sorted(stayed)[:3]}")
    return [f"{name} {dtype}: {each}" for each in found]


def serve(engine: str, device: str) -> None:
    """Read work line by line from stdin and answer each; exit once the GPU has become unusable."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps what libraries print out of the answers
    import torch

    # For a close comparison of results; it cannot be set any more once torch's samples are imported.
    torch.backends.cudnn.allow_tf32 = False
    os.environ["TORCHPORT_SPEED_TRIAL"] = "0"
    answers.write(READY)
    answers.flush()
    for line in sys.stdin:
        fields = json.loads(line)
        work = Work(fields["what"], tuple(fields["names"]), tuple(fields["dtypes"]))
        try:
            problems = check(work, engine, device)
        except Exception as error:  # noqa: BLE001  # any exception is recorded as a problem
            from conformance.op_samples import is_fatal

            if is_fatal(error):
                os._exit(3)
            problems = [f"{work.key}: {traceback.format_exc()[-1500:]}"]
        answers.write(json.dumps(problems) + "\n")
        answers.flush()


# ---- in the caller


class Worker:
    """A process that does work, and is restarted when it crashes or hangs."""

    def __init__(self, engine: str, device: str, log: Path) -> None:
        self._command = [sys.executable, __file__, "--serve", "ops", engine, "--device", device]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def do(self, work: Work, seconds: float) -> list[str] | None:
        """Return the problems found; None if the process crashes, or exceeds the time limit."""
        process = self._process or self._start()
        try:
            process.stdin.write(
                json.dumps({"what": work.what, "names": work.names, "dtypes": work.dtypes}) + "\n"
            )
            process.stdin.flush()
        except OSError:
            self.end()
            return None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        answer = process.stdout.readline() if ready else ""
        if not answer:
            self.end()
            return None
        return json.loads(answer)

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        if self._process.stdout.readline() != READY:
            raise RuntimeError(f"a worker does not start; see {self._log}")
        return self._process

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Sweep:
    """Does the work that is not in the records yet."""

    def __init__(self, given: argparse.Namespace, work: list[Work]) -> None:
        self._given = given
        self._until = time.monotonic() + 60 * given.minutes
        self._lock = threading.Lock()
        self.records: dict[str, dict[str, object]] = {}
        if given.records.exists():
            self.records = json.loads(given.records.read_text())
        self._left: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._open = 0
        for one in work:
            self._add(one)

    def _add(self, work: Work) -> None:
        if self.records.get(work.key, {}).get("split"):
            for one in work.split():
                self._add(one)
        elif work.key not in self.records:
            self._open += 1
            self._left.put(work)

    def run(self) -> None:
        """Do all of the work, or as much as there is time for."""
        threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(self._given.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, number: int) -> None:
        log = self._given.records.with_suffix(f".{number}.log")
        worker = Worker(self._given.engine, self._given.device, log)
        while self._open and time.monotonic() < self._until:
            try:
                work = self._left.get(timeout=1)
            except queue.Empty:
                continue
            self._do(worker, work)
        worker.end()

    def _do(self, worker: Worker, work: Work) -> None:
        began = time.monotonic()
        seconds = min(self._given.item_seconds, self._until + 20 - began)
        problems = worker.do(work, seconds)
        taken = time.monotonic() - began
        out_of_time = problems is None and time.monotonic() > self._until
        with self._lock:
            if problems is None and len(work.names) > 1 and not out_of_time:
                self.records[work.key] = {"split": True}
                self._add(work)  # op by op
            elif not out_of_time:
                lost = [f"{work.key}: its process crashed or took more than {seconds:.0f} s"]
                self.records[work.key] = {
                    "problems": lost if problems is None else problems,
                    "seconds": taken,
                }
            self._open -= 1
            self._given.records.write_text(json.dumps(self.records, indent=1))
            shown = "lost" if problems is None else f"{len(problems)} wrong"
            print(f"{taken:6.1f} s  {shown:9}  {work.key}", flush=True)

    def summary(self) -> int:
        """Print a summary, and return the exit code."""
        done = [row for row in self.records.values() if "problems" in row]
        wrong = [problem for row in done for problem in row["problems"]]
        print("\n".join(wrong))
        print(f"\n{len(done)} pieces done, {self._open} not yet; {len(wrong)} samples or models are wrong")
        return 1 if wrong else 2 if self._open else 0


def all_work(given: argparse.Namespace) -> list[Work]:
    """Return all pieces of work."""
    dtypes = tuple(given.dtypes)
    if given.what == "models":
        from conformance.small_models import MODELS

        return [Work("models", (name,), (dtype,)) for name in MODELS for dtype in dtypes]
    from conformance.op_samples import OPS, name_of

    names = [name_of(op) for op in OPS]
    groups = [tuple(names[first : first + given.together]) for first in range(0, len(names), given.together)]
    return [
        Work("ops", group, part)
        for part in (
            tuple(one for one in dtypes if one not in HALF),
            tuple(one for one in dtypes if one in HALF),
        )
        if part
        for group in groups
    ]


def main() -> int:
    """Run the sweep, print the problems found, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["ops", "models"])
    parser.add_argument("engine")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtypes", nargs="+", help="float32 int64 bool for ops, float32 bfloat16 for models")
    parser.add_argument("--together", type=int, default=8, help="how many ops are one graph")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--item-seconds", type=float, default=900.0, help="how long a graph's ops may take")
    parser.add_argument("--records", type=Path, help="by default in out/sweeps")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.engine, given.device)
        return 0
    usual = ["float32", "int64", "bool"] if given.what == "ops" else ["float32", "bfloat16"]
    given.dtypes = given.dtypes or usual
    given.records = given.records or Path("out/sweeps", f"{given.engine}-{given.device}-{given.what}.json")
    given.records.parent.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(given, all_work(given))
    sweep.run()
    return sweep.summary()


if __name__ == "__main__":
    sys.exit(main())
