"""Times models in float32 at batch 1: torchport against torch, OpenVINO's own backend and onnxruntime.

    python benchmarks/inference.py
    python benchmarks/inference.py --models resnet18 gpt2 --seconds 10 --skip inductor

All contenders take turns in one process, on random weights and under `torch.no_grad()`; the table shows
medians. Each model has a process of its own. A contender whose results are not eager torch's does not count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

import torch
from common import ABSENT, Turns, median, render_table, spread, time_in_turns, write_results
from contenders import CONTENDERS, OTHERS, OURS, Subject

import torchport
from torchport.errors import one_line
from torchport.structure import tensors_in
from torchport.zoo import Model

PCC = 0.9999  # what a contender's results must reach for its time to count
ALLOWED = 1.05  # how much slower than the best other torchport may be
NOISY = 0.1  # from which spread on a time is called noisy

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
    # With few and narrow layers: what they are made of, not what they weigh.
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
        threads: how many threads each may use; 0 means as many as torch takes by itself.
    """

    turns: Turns
    skip: tuple[str, ...] = ()
    threads: int = 0


def load(name: str) -> Model:
    """Load a model of `MODELS` with random weights and inputs of the length that is asked."""
    model = torchport.zoo.load(MODELS[name], weights=False)
    if MODELS[name].startswith("hf"):
        model.module.config.use_cache = False  # one call needs no cache, and not all contenders can return it
    if name in TOKENS:
        cut = {key: value[:, : TOKENS[name]] for key, value in model.kwargs.items()}
        model = replace(model, kwargs=cut)
    return model


def measure(name: str, settings: Settings) -> dict[str, dict[str, object]]:
    """Time one model; return for each contender its time, accuracy and compile time, or its error."""
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
            except Exception as error:  # noqa: BLE001  # one that fails shows its error and stops nobody
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
    """Return why a contender fails, in one line: an exporter wraps the error that says so."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)


def _tensors(value: object) -> list[torch.Tensor]:
    """Return copies of a result's tensors: some contenders write the next result over them."""
    return [tensor.clone() for _, tensor in tensors_in(value)]


def measure_apart(name: str, settings: Settings) -> dict[str, dict[str, object]]:
    """Time one model in a process of its own: one that crashes costs its row."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(measure, name, settings).result()
        except BrokenProcessPool:
            error = "the process crashed"
        except Exception as failure:  # noqa: BLE001  # a model that does not load costs its row
            error = one_line(failure)
    return {contender: {"error": error} for contender in CONTENDERS if contender not in settings.skip}


def ratios(rows: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """Return the time of each of ours relative to the best of the others."""
    others = [float(rows[name]["seconds"]) for name in OTHERS if "seconds" in rows.get(name, {})]
    if not others:
        return {}
    return {
        name: float(rows[name]["seconds"]) / min(others) for name in OURS if "seconds" in rows.get(name, {})
    }


def render(results: Mapping[str, Mapping[str, Mapping[str, object]]], skip: Sequence[str]) -> str:
    """Return the table, in milliseconds, and below it what failed, and what there is to say of a `*`."""
    names = [name for name in CONTENDERS if name not in skip]
    header = ["model, ms a call", *names, *[f"{name} / best other" for name in OURS if name not in skip]]
    lines = []
    for model, rows in results.items():
        found = ratios(rows)
        cells = [_cell(rows.get(name, {})) for name in names]
        shares = [f"{found[name]:.3f}" if name in found else ABSENT for name in OURS if name not in skip]
        lines.append([model, *cells, *shares])
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


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if torchport is too slow or fails somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument(
        "--runs", type=int, help="turns of each contender; by default as many as fit --seconds"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long to time a model for")
    parser.add_argument("--skip", nargs="+", choices=CONTENDERS, default=[], metavar="CONTENDER")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of each contender; torch's own by default"
    )
    given = parser.parse_args()
    settings = Settings(Turns(given.runs, given.seconds), tuple(given.skip), given.threads)
    results = {}
    for name in given.models:
        results[name] = measure_apart(name, settings)
        print(f"  {name}: {ratios(results[name])}", file=sys.stderr, flush=True)
    print(render(results, given.skip))
    found = {name: ratios(rows) for name, rows in results.items()}
    path = write_results("inference", {"models": results, "ratios": found, "allowed": ALLOWED})
    print(f"\nwritten to {path}", file=sys.stderr)
    return int(not _good(results, found, given.skip))


def _good(
    results: Mapping[str, Mapping[str, Mapping[str, object]]],
    found: Mapping[str, Mapping[str, float]],
    skip: Sequence[str],
) -> bool:
    ours = [name for name in OURS if name not in skip]
    ran = all("seconds" in rows.get(name, {}) for rows in results.values() for name in ours)
    return ran and all(ratio <= ALLOWED for row in found.values() for ratio in row.values())


if __name__ == "__main__":
    sys.exit(main())
