"""Times one program for all sizes against programs for fixed sizes, on OpenVINO, interleaved in one process.

    python benchmarks/open_sizes.py
    python benchmarks/open_sizes.py --models bert --layers 2 --seconds 5

BERT-base with an open sequence length at 32, 128 and 512 tokens, and ResNet-50 with an open batch at 1, 4
and 16. The weights are random: only time is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from common import Turns, median, render_table, time_in_turns, write_results
from torch import nn
from torch.export import Dim

import torchport

LIMIT = 1.1  # times as long as the program for that size
Args = tuple[torch.Tensor, ...]


def bert(layers: int) -> tuple[nn.Module, Callable[[int], Args], object, tuple[int, ...]]:
    """Return the model, a function that makes its inputs, the open dimension, and the sizes to time."""
    from torchport.zoo.torchvision_ops import ensure_torchvision_ops

    ensure_torchvision_ops()
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(num_hidden_layers=layers)).eval()

    def inputs(length: int) -> Args:
        return torch.randint(0, 30000, (1, length)), torch.ones(1, length, dtype=torch.long)

    length = Dim("length", min=1, max=512)
    return model, inputs, ({1: length}, {1: length}), (32, 128, 512)


def resnet(layers: int) -> tuple[nn.Module, Callable[[int], Args], object, tuple[int, ...]]:
    """Return the same for images."""
    model = torchport.zoo.load("torchvision:resnet50", weights=False).module.eval()
    batch = Dim("batch", min=1, max=16)
    return model, lambda rows: (torch.randn(rows, 3, 224, 224),), ({0: batch},), (1, 4, 16)


MODELS = {"bert": bert, "resnet": resnet}


def measure(name: str, layers: int, turns: Turns, threads: int) -> dict[str, dict[str, float]]:
    """Return the seconds of a call and of a build, by size."""
    model, inputs, shapes, sizes = MODELS[name](layers)
    options = {"cache": False, "threads": threads, "speed_trial": False}
    began = time.perf_counter()
    opened = torchport.compile(model, inputs(max(sizes[0], 2)), dynamic_shapes=shapes, options=options)
    seconds_open = time.perf_counter() - began
    found = {}
    for size in sizes:
        args = inputs(size)
        began = time.perf_counter()
        fixed = torchport.compile(model, args, options=options)
        seconds_fixed = time.perf_counter() - began
        calls = {
            "open": lambda args=args: opened(*args),
            "fixed": lambda args=args, fixed=fixed: fixed(*args),
        }
        with torch.no_grad():
            times = time_in_turns(calls, turns)
        found[f"{name} {size}"] = {
            "open": median(times["open"]),
            "fixed": median(times["fixed"]),
            "build_open": seconds_open,
            "build_fixed": seconds_fixed,
        }
    if len(opened.programs) != 1 or opened.fallbacks.fallbacks:
        raise RuntimeError(f"{name}: {len(opened.programs)} programs, {opened.fallbacks}")
    return found


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if the open program is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--layers", type=int, default=12, help="of BERT")
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time a size for")
    parser.add_argument("--threads", type=int, default=0, help="OpenVINO's; 0 leaves the choice to it")
    given = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in given.models:
        results |= measure(name, given.layers, Turns(seconds=given.seconds), given.threads)
    rows = [
        [
            size,
            f"{1e3 * row['open']:.1f}",
            f"{1e3 * row['fixed']:.1f}",
            f"{row['open'] / row['fixed']:.2f}",
            f"{row['build_open']:.1f}",
            f"{row['build_fixed']:.1f}",
        ]
        for size, row in results.items()
    ]
    print(render_table(["model and size", "open ms", "fixed ms", "ratio", "build s", "fixed build s"], rows))
    print(f"\nwritten to {write_results('open_sizes', {'limit': LIMIT, 'sizes': results})}", file=sys.stderr)
    return int(any(row["open"] > LIMIT * row["fixed"] for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
