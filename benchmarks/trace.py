"""Measures how long tracing a model and writing it as code takes, against torch's own tracers.

    python benchmarks/trace.py
    python benchmarks/trace.py --rounds 3 --parts trace

- trace: `trace_graph`, non-strict `torch.export.export` and `torch.jit.trace`, of ResNet-50 and of a
  transformer encoder of 12 layers; interleaved in one process. Then the additional time to write the code.
- large: Llama-3.1-405B from its configuration, without weights: traced and printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

import torch
from common import Turns, median, render_table, time_in_turns, write_results

import torchport
from torchport import zoo

EXPORT_RATIO = 0.5  # of torch.export's time, at most
JIT_RATIO = 1.0  # of torch.jit.trace's time, at most
CODE_LIMIT = 0.5  # additional seconds
LARGE_LIMIT = 60.0  # seconds

MODELS = {"resnet50": "torchvision:resnet50", "encoder, 12 layers": "hf:bert-base-uncased"}
WAYS = ("trace_graph", "torch.export", "torch.jit.trace")
LARGE = "hf:meta-llama/Llama-3.1-405B"
PARTS = ("trace", "large")


def measure_trace(name: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of each tracer for a model, and of writing its code."""
    model = zoo.load(name, weights=False)
    kwargs = dict(model.kwargs)

    def jit() -> object:
        return torch.jit.trace(
            model.module, model.args or None, example_kwarg_inputs=kwargs or None, strict=False
        )

    with torch.no_grad():
        graph = torchport.trace_graph(model.module, model.args, kwargs)
        times = time_in_turns(
            {
                "trace_graph": lambda: torchport.trace_graph(model.module, model.args, kwargs),
                "torch.export": lambda: torch.export.export(model.module, model.args, kwargs, strict=False),
                "torch.jit.trace": jit,
                "code": lambda: graph.to_code("Model"),
            },
            Turns(rounds=rounds, burst=1, turn=0.0),
        )
    return {way: median(values) for way, values in times.items()}


def measure_large() -> dict[str, float]:
    """Return the seconds that tracing and printing the large model take."""
    model = zoo.load(LARGE, weights=False, device="meta")
    start = time.perf_counter()
    graph = torchport.trace_graph(model.module, model.args, model.kwargs)
    traced = time.perf_counter()
    lines = graph.to_code("Llama").count("\n")
    return {"trace": traced - start, "code": time.perf_counter() - traced, "lines": lines}


def main() -> int:
    """Measure, print the tables, and write the JSON; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each tracer")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, object] = {}
    good = True
    if "trace" in given.parts:
        good &= _trace_part(given.rounds, results)
    if "large" in given.parts:
        good &= _large_part(results)
    print(f"\nwritten to {write_results('trace', results)}", file=sys.stderr)
    return int(not good)


def _trace_part(rounds: int, results: dict[str, object]) -> bool:
    found = {label: measure_trace(name, rounds) for label, name in MODELS.items()}
    header = ["seconds", *WAYS, "of export", "of jit", "code"]
    rows = [
        [
            label,
            *[f"{row[way]:.3f}" for way in WAYS],
            f"{row['trace_graph'] / row['torch.export']:.2f} (<= {EXPORT_RATIO})",
            f"{row['trace_graph'] / row['torch.jit.trace']:.2f} (<= {JIT_RATIO})",
            f"{row['code']:.3f} (< {CODE_LIMIT})",
        ]
        for label, row in found.items()
    ]
    print(render_table(header, rows), end="\n\n")
    results["trace_seconds"] = found
    return all(
        row["trace_graph"] <= EXPORT_RATIO * row["torch.export"]
        and row["trace_graph"] <= JIT_RATIO * row["torch.jit.trace"]
        and row["code"] < CODE_LIMIT
        for row in found.values()
    )


def _large_part(results: dict[str, object]) -> bool:
    found = measure_large()
    total = found["trace"] + found["code"]
    row = [LARGE, f"{found['trace']:.1f}", f"{found['code']:.1f}", f"{total:.1f}", f"< {LARGE_LIMIT:.0f}"]
    print(render_table(["seconds", "trace", "code", "in all", "asked"], [row]))
    results["large_seconds"] = found
    return total < LARGE_LIMIT


if __name__ == "__main__":
    sys.exit(main())
