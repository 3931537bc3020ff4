"""Times models in float32 at batch 1: torchport against torch, OpenVINO's own backend and onnxruntime.

    python benchmarks/inference.py
    python benchmarks/inference.py --models "res*" gpt2 --budget 30 --seconds 10 --skip inductor
    python benchmarks/inference.py --table          # prints the table from the records; measures nothing
    python benchmarks/inference.py --docs           # fills docs/results.md from docs/results/inference-*.json

All contenders take turns in one process, on random weights and under `torch.no_grad()`; the table shows
medians. Each model has its own process. A contender whose results differ from eager torch's does not count.
A model that is already in the records is measured again only on request (`--again`), so that a run
can be made in pieces. Records of another machine or of other versions are refused.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from common import ABSENT, RESULTS, Turns, document, median, render_table, spread, time_in_turns
from contenders import CONTENDERS, OTHERS, OURS, Subject

import torchport
from torchport.errors import one_line
from torchport.records import write_text
from torchport.report.marked_section import fill_place
from torchport.structure import tensors_in
from torchport.zoo import Model

PCC = 0.9999  # the PCC that a contender's results must reach for its time to count
AUTO, FROZEN = "torchport-auto", "torchport-frozen"
ALLOWED = 1.05  # how much slower than the best peer `auto` may be, and than eager torch any target
# Peers that freeze the weights: to compare with them fairly, `auto` is also run with frozen weights.
FREEZING = ("openvino-backend", "onnxruntime", "openvino-by-hand")
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
NOISY = 0.1  # the spread from which a time is called noisy

MODELS = {
    "resnet18": "torchvision:resnet18",
    "resnet50": "torchvision:resnet50",
    "mobilenet_v3_large": "torchvision:mobilenet_v3_large",
    "squeezenet1_1": "torchvision:squeezenet1_1",
    "shufflenet_v2_x1_0": "torchvision:shufflenet_v2_x1_0",
    "mnasnet1_0": "torchvision:mnasnet1_0",
    "efficientnet_b0": "torchvision:efficientnet_b0",
    "densenet121": "torchvision:densenet121",
    "regnet_y_400mf": "torchvision:regnet_y_400mf",
    "convnext_tiny": "torchvision:convnext_tiny",
    "swin_t": "torchvision:swin_t",
    "vit_b_16": "torchvision:vit_b_16",
    "ghostnet_100": "timm:ghostnet_100",
    "repvgg_a0": "timm:repvgg_a0",
    "mixer_b16_224": "timm:mixer_b16_224",
    "bert-base": "hf:bert-base-uncased",  # 128 tokens
    "gpt2": "hf:gpt2",  # cut to 64 tokens
    # With few and narrow layers: these test the architecture, not its size.
    "detr-small": "hf-small:detr",
    "whisper-small": "hf-small:whisper",
    "t5-small": "hf-small:t5",
}
TOKENS = {"bert-base": 128, "gpt2": 64}


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Args:
        turns: how the contenders are timed.
        skip: the contenders to leave out.
        threads: how many threads each may use; 0 means torch's default.
    """

    turns: Turns
    skip: tuple[str, ...] = ()
    threads: int = 0


def load(name: str) -> Model:
    """Load a model of `MODELS` with random weights and inputs of the specified length."""
    model = torchport.zoo.load(MODELS[name], weights=False)
    if MODELS[name].startswith("hf"):
        for module in model.module.modules():  # a decoder has a configuration of its own
            if hasattr(module, "config"):
                module.config.use_cache = (
                    False  # one call needs no cache, and not all contenders can return it
                )
    if name in TOKENS:
        cut = {key: value[:, : TOKENS[name]] for key, value in model.kwargs.items()}
        model = replace(model, kwargs=cut)
    return model


def measure(name: str, settings: Settings) -> dict[str, dict[str, object]]:
    """Time one model; return for each contender its time, accuracy and compile time, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHPORT_CACHE_DIR"] = folder  # empty, and for this model only
        return _measure(name, settings)


def _measure(name: str, settings: Settings) -> dict[str, dict[str, object]]:
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    model = load(name)
    subject = Subject(model.module, tuple(model.args), model.kwargs, torch.get_num_threads())
    rows: dict[str, dict[str, object]] = {}
    calls = {}
    with torch.no_grad():
        expected = _tensors(model.module(*model.args, **model.kwargs))
        for contender, prepare in CONTENDERS.items():
            if contender in settings.skip:
                continue
            print(f"  {name}: preparing {contender}", file=sys.stderr, flush=True)
            notes: list[str] = []
            try:
                start = time.perf_counter()
                call = prepare(subject, notes)
                result = call()
                seconds = time.perf_counter() - start
                pcc = torchport.compare(_tensors(result), expected).pcc
            except Exception as error:  # noqa: BLE001  # a failure shows in its row, and others go on
                rows[contender] = {"error": _reason(error)}
                continue
            rows[contender] = {"first_run_seconds": seconds, "pcc": pcc, "notes": notes}
            if pcc < PCC:
                rows[contender]["error"] = f"wrong results: PCC {pcc:.6f}"
                continue
            calls[contender] = call
        print(f"  {name}: timing", file=sys.stderr, flush=True)
        times = time_in_turns(calls, settings.turns)
    for contender, taken in times.items():
        rows[contender] |= {
            "seconds": median(taken),
            "fastest": min(taken),
            "spread": spread(taken),
            "calls": len(taken),
        }
    return rows


def _reason(error: BaseException) -> str:
    """Return why a contender fails, in one line: an exporter wraps the original error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)


def _tensors(value: object) -> list[torch.Tensor]:
    """Return copies of a result's tensors: some contenders write the next result over them."""
    return [tensor.clone() for _, tensor in tensors_in(value)]


def measure_apart(name: str, settings: Settings) -> dict[str, dict[str, object]]:
    """Time one model in its own process: a crash loses only its row."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(measure, name, settings).result()
        except BrokenProcessPool:
            error = "the process crashed"
        except Exception as failure:  # noqa: BLE001  # if a model does not load, only its row is lost
            error = one_line(failure)
    return {contender: {"error": error} for contender in CONTENDERS if contender not in settings.skip}


Rows = Mapping[str, Mapping[str, object]]  # of one model, by contender


@dataclass(frozen=True)
class Standing:
    """How torchport compares with its peers on one model.

    Args:
        best: the fastest peer; empty if none ran.
        auto: the time of `auto` relative to it, if both ran.
        frozen: that of `auto` with frozen weights, if the best peer freezes them.
        to_eager: the time of each way to use torchport, relative to eager torch's.
    """

    best: str
    auto: float | None
    frozen: float | None
    to_eager: Mapping[str, float]

    @property
    def alike(self) -> float | None:
        """The ratio to the best peer, with frozen weights if that peer freezes them."""
        return self.auto if self.frozen is None else self.frozen

    @property
    def holds(self) -> bool:
        """Whether `auto` is as fast as the best peer, and nothing slower than eager torch."""
        return self.alike is not None and all(
            ratio <= ALLOWED for ratio in (self.alike, *self.to_eager.values())
        )

    def __str__(self) -> str:
        auto = "auto did not run" if self.auto is None else f"auto / {self.best} {_judged(self.auto)}"
        if self.frozen is not None:
            auto += f", frozen {_judged(self.frozen)}"
        return ", ".join(
            [auto, *[f"{name} / eager {_judged(ratio)}" for name, ratio in self.to_eager.items()]]
        )


def _judged(ratio: float) -> str:
    return f"{ratio:.3f} {'ok' if ratio <= ALLOWED else 'SLOWER'}"


def standing(rows: Rows) -> Standing:
    """Return how torchport compares with its peers on a model."""
    times = {name: float(row["seconds"]) for name, row in rows.items() if "seconds" in row}
    best = min((name for name in OTHERS if name in times), key=times.__getitem__, default="")
    auto = times[AUTO] / times[best] if best and AUTO in times else None
    frozen = times[FROZEN] / times[best] if best in FREEZING and FROZEN in times else None
    eager = times.get("eager")
    to_eager = {name: times[name] / eager for name in OURS if name in times} if eager else {}
    return Standing(best, auto, frozen, to_eager)


def render(results: Mapping[str, Rows]) -> str:
    """Return the table, in milliseconds, followed by failures and the notes that `*` refers to."""
    names = [name for name in CONTENDERS if any(name in rows for rows in results.values())]
    ours = [name for name in OURS if name in names]
    header = [
        "model, ms a call",
        *names,
        "auto / best peer",
        "frozen / best peer",
        f"≤ {ALLOWED}",
        *[f"{name} / eager" for name in ours],
    ]
    lines = []
    for model, rows in results.items():
        found = standing(rows)
        cells = [_cell(rows.get(name, {})) for name in names]
        auto = [ABSENT if ratio is None else f"{ratio:.3f}" for ratio in (found.auto, found.frozen)]
        auto += [ABSENT if found.alike is None else "yes" if found.alike <= ALLOWED else "NO"]
        shares = [f"{found.to_eager[name]:.3f}" if name in found.to_eager else ABSENT for name in ours]
        lines.append([model, *cells, *auto, *shares])
    remarks = [
        f"- {model}, {name}: {remark}"
        for model, rows in results.items()
        for name, row in rows.items()
        for remark in _remarks(row)
    ]
    return "\n".join([render_table(header, lines), *([""] if remarks else []), *remarks])


def _remarks(row: Mapping[str, object]) -> list[str]:
    notes = row.get("notes", [])
    assert isinstance(notes, list)
    noise = float(row.get("spread", 0.0))
    noisy = [f"the quartiles are ±{noise:.0%} apart: the machine is not quiet"] if noise > NOISY else []
    return [*([str(row["error"])] if "error" in row else []), *notes, *noisy]


def _cell(row: Mapping[str, object]) -> str:
    if "error" in row:
        return "wrong" if "pcc" in row else "error"
    if "seconds" not in row:
        return ABSENT
    return f"{1000 * float(row['seconds']):.2f}{'*' if row.get('notes') else ''}"


class Records:
    """The measurements on this machine, one model at a time, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._document = document("inference", {"allowed": ALLOWED, "models": {}})
        if not path.exists():
            return
        kept = json.loads(path.read_text(encoding="utf-8"))
        for what in ("schema", "machine", "versions"):
            if kept.get(what) != self._document[what]:
                raise SystemExit(
                    f"{path} is of another {what}: name another file with --records, or remove it"
                )
        self._document["models"] = kept["models"]

    @property
    def models(self) -> dict[str, Rows]:
        """The rows of each measured model, in the order of `MODELS`."""
        kept = self._document["models"]
        assert isinstance(kept, dict)
        return {name: kept[name] for name in MODELS if name in kept}

    def keep(self, name: str, rows: Rows) -> None:
        """Add a model's rows to the records."""
        self._document["models"] |= {name: rows}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(json.dumps(self._document, indent=1) + "\n", self._path)


def fill_docs() -> None:
    """Write a table for each machine in docs/results into the page."""
    parts = []
    for path in sorted((ROOT / "docs" / "results").glob("inference-*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        facts = kept["machine"]
        machine = f"{facts['processor']}, {facts['threads']} threads, {facts['system']}"
        parts.append(f"{machine} ([records](results/{path.name})):\n\n{render(kept['models'])}\n")
    write_text(fill_place(PAGE.read_text(encoding="utf-8"), "inference", "\n".join(parts)), PAGE)


def _wanted(patterns: Sequence[str]) -> list[str]:
    found = [name for name in MODELS if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if not found:
        raise SystemExit(f"no model is named {' or '.join(patterns)}; there are {', '.join(MODELS)}")
    return found


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if torchport is too slow or fails somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["*"], metavar="GLOB", help="those whose names match")
    parser.add_argument("--again", action="store_true", help="measure models that are in the records, too")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="minutes after which none is begun"
    )
    parser.add_argument("--records", type=Path, default=RESULTS / "inference.json")
    parser.add_argument("--table", action="store_true", help="print the records' table, and measure nothing")
    parser.add_argument(
        "--docs", action="store_true", help="fill the table of docs/results.md, and measure nothing"
    )
    parser.add_argument(
        "--runs", type=int, help="turns of each contender; by default as many as fit --seconds"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long to time a model for")
    parser.add_argument("--skip", nargs="+", choices=CONTENDERS, default=[], metavar="CONTENDER")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of each contender; torch's own by default"
    )
    given = parser.parse_args()
    if given.docs:
        fill_docs()
        return 0
    records = Records(given.records)
    if not given.table:
        _measure_all(records, given)
    results = records.models
    print(render(results))
    missing = [name for name in MODELS if name not in results]
    print(
        f"\n{len(results)} models in {given.records}; not yet: {', '.join(missing) or 'none'}",
        file=sys.stderr,
    )
    return int(not all(standing(rows).holds for rows in results.values()))


def _measure_all(records: Records, given: argparse.Namespace) -> None:
    settings = Settings(Turns(given.runs, given.seconds), tuple(given.skip), given.threads)
    until = time.monotonic() + 60 * given.budget
    for name in _wanted(given.models):
        if name in records.models and not given.again:
            continue
        if time.monotonic() > until:
            print(f"  the budget of {given.budget} minutes is spent", file=sys.stderr)
            return
        records.keep(name, measure_apart(name, settings))
        print(f"  {name}: {standing(records.models[name])}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
