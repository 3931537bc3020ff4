"""Times models in bfloat16 and float16 against the same models in float32, on OpenVINO, interleaved.

    python benchmarks/half_precision.py
    python benchmarks/half_precision.py --models torchvision:resnet18 --dtypes bfloat16 --seconds 10

On a processor with AMX bfloat16 instructions, such a model must be no slower than in float32; on
others there is no limit. The table also shows the error of each, and of eager torch in that dtype, compared
with eager torch in float32 and relative to the largest value.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

import torch
from common import Turns, median, render_table, time_in_turns, write_results

import torchport
from torchport.structure import flatten, flatten_call

DTYPES = ("bfloat16", "float16")
MODELS = ("torchvision:resnet50", "hf:bert-base-uncased")
LIMIT = 1.0  # times as long as float32, in bfloat16


def measure(name: str, dtypes: list[str], turns: Turns, threads: int) -> dict[str, dict[str, float]]:
    """Return the seconds of a call, and the errors, by dtype."""
    model = torchport.zoo.load(name, weights=False)
    call = flatten_call(tuple(model.args), dict(model.kwargs))
    calls, errors, exact = {}, {}, None
    for dtype in ("float32", *dtypes):
        kind = getattr(torch, dtype)
        module = copy.deepcopy(model.module).to(kind).eval()
        leaves = [leaf.to(kind) if leaf.is_floating_point() else leaf for leaf in call.leaves]
        args, kwargs = call.structure.rebuild(leaves)
        with torch.no_grad():
            compiled = torchport.compile(module, args, kwargs, options={"cache": False, "threads": threads})
            if not compiled.coverage.complete:
                raise RuntimeError(f"{name} in {dtype}: {compiled.coverage.ops_remain} ops stay on the host")
            ours, eager = (flatten(run(*args, **kwargs)).leaves[0].float() for run in (compiled, module))
        exact = eager if exact is None else exact
        errors[dtype] = [float((one - exact).abs().max() / exact.abs().max()) for one in (ours, eager)]
        calls[dtype] = lambda compiled=compiled, args=args, kwargs=kwargs: compiled(*args, **kwargs)
    with torch.no_grad():
        times = time_in_turns(calls, turns)
    return {
        dtype: {"seconds": median(taken), "error": errors[dtype][0], "error_of_eager": errors[dtype][1]}
        for dtype, taken in times.items()
    }


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if bfloat16 is slower where the processor has it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time a model for")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)  # else the speed trial would compare with eager torch on all cores
    found = {
        name: measure(name, given.dtypes, Turns(seconds=given.seconds), given.threads)
        for name in given.models
    }
    rows = [
        [
            f"{name}, {dtype}",
            f"{1000 * row['seconds']:.1f}",
            f"{row['seconds'] / of['float32']['seconds']:.2f}",
            f"{row['error']:.1e}",
            f"{row['error_of_eager']:.1e}",
        ]
        for name, of in found.items()
        for dtype, row in of.items()
    ]
    print(render_table(["model", "ms", "of float32", "error", "of eager"], rows))
    print(f"\nwritten to {write_results('half_precision', {'models': found})}", file=sys.stderr)
    described = Path("/proc/cpuinfo")  # OpenVINO names bfloat16 even where it only emulates it
    able = described.is_file() and "amx_bf16" in described.read_text(errors="replace")
    ratios = [
        of["bfloat16"]["seconds"] / of["float32"]["seconds"] for of in found.values() if "bfloat16" in of
    ]
    return int(able and any(ratio > LIMIT for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
