"""Times the ttnn target without a chip: compiling beyond export, and a simulated call against eager torch.

    python benchmarks/simulator.py
    python benchmarks/simulator.py --models resnet50 --seconds 10

A simulated call computes in float32 on values rounded to bfloat16, as the chip stores them; eager torch
computes in float32. They are interleaved in one process. To emulate a processor without bfloat16 instructions
on one that has them, set ATEN_CPU_CAPABILITY=default and ONEDNN_MAX_CPU_ISA=AVX2. Compiling is timed
from an empty cache and includes the trial of the island; a tiny model is compiled first, to pay for the
one-time costs of a process.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from common import Turns, median, render_table, time_in_turns, write_results
from torch import nn

import torchport

COMPILE_LIMIT = 10.0  # seconds beyond export
CALL_LIMIT = 3.0  # times eager
MODELS = {"resnet50": "torchvision:resnet50", "bert-base": "hf:bert-base-uncased"}


def measure(name: str, turns: Turns) -> dict[str, float]:
    """Return the seconds of export, of compiling, and of a call in each way."""
    model = torchport.zoo.load(MODELS[name], weights=False)
    args, kwargs = tuple(model.args), dict(model.kwargs)
    with torch.no_grad():
        start = time.perf_counter()
        torch.export.export(model.module, args, kwargs, strict=False)
        exported = time.perf_counter()
        compiled = torchport.compile(model.module, args, kwargs, target="ttnn", options={"cache": False})
        done = time.perf_counter()
        if not compiled.coverage.complete:
            raise RuntimeError(f"{name}: {compiled.coverage.ops_remain} ops stay on the host")
        times = time_in_turns(
            {
                "eager": lambda: model.module(*args, **kwargs),
                "simulated": lambda: compiled(*args, **kwargs),
            },
            turns,
        )
    return {
        "export": exported - start,
        "compile": done - exported,
        **{which: median(taken) for which, taken in times.items()},
    }


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long to time a model for")
    given = parser.parse_args()
    torchport.compile(nn.Linear(2, 2).eval(), (torch.ones(1, 2),), target="ttnn", options={"cache": False})
    found = {name: measure(name, Turns(seconds=given.seconds)) for name in given.models}
    rows = [
        [
            name,
            f"{row['export']:.2f}",
            f"{row['compile'] - row['export']:.2f}",
            f"{1000 * row['eager']:.1f}",
            f"{1000 * row['simulated']:.1f}",
            f"{row['simulated'] / row['eager']:.2f}",
        ]
        for name, row in found.items()
    ]
    header = ["model", "export, s", "compile beyond it, s", "eager, ms", "simulated, ms", "ratio"]
    print(render_table(header, rows))
    print(f"asked: beyond export < {COMPILE_LIMIT:.0f} s, ratio <= {CALL_LIMIT:.0f}")
    print(f"\nwritten to {write_results('simulator', {'seconds': found})}", file=sys.stderr)
    return int(
        any(
            row["compile"] - row["export"] >= COMPILE_LIMIT or row["simulated"] > CALL_LIMIT * row["eager"]
            for row in found.values()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
