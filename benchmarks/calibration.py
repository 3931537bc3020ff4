"""Times a model's calibration against nncf's own, and the search for sensitive layers against calibration.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --model torchvision:resnet18 --items 16

The same images, interleaved: torchport reads, writes and calibrates with as many as nncf does, and holds back
a quarter as many to evaluate on. nncf gets the exported graph, as its documentation advises. The required PCC
makes layers go back to float, so that the whole search runs. Exits with 1 if calibration takes
more than 1.5 times nncf's time, or the search more than 3 times as long as calibration.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Iterator

import nncf
import torch
from common import median, render_table, write_results

import torchport
from torchport.quantization import AccuracyBudget

OF_NNCF, OF_CALIBRATION = 1.5, 3.0


def images(model: torchport.zoo.Model, count: int) -> Iterator[torch.Tensor]:
    """Yield images one at a time, without keeping them."""
    generator = torch.Generator().manual_seed(0)
    [example] = model.args
    for _ in range(count):
        yield torch.randn(example.shape, generator=generator)


def nncf_seconds(model: torchport.zoo.Model, count: int) -> float:
    """Return how long nncf alone takes, from the model to the quantized graph."""
    start = time.perf_counter()
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        graph = torch.export.export(model.module, tuple(model.args)).module()
        nncf.quantize(graph, nncf.Dataset(images(model, count)), subset_size=count, fast_bias_correction=True)
    return time.perf_counter() - start


class Phases:
    """Records when each part of `torchport.quantize` begins."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.began: dict[str, float] = {}
        self.judged = 0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Record progress."""
        self.began.setdefault(what, time.perf_counter())
        self.judged += what == "Judging"


def own_seconds(model: torchport.zoo.Model, count: int, pcc: float) -> tuple[float, float, int]:
    """Return how long calibration and the search take, and how many models the search evaluated."""
    phases = Phases()
    torchport.quantize(
        model.module,
        images(model, count + count // 4),
        speed=False,
        accuracy=AccuracyBudget(pcc=pcc),
        progress=phases,
    )
    end, measuring = time.perf_counter(), phases.began["Measuring"]
    return measuring - phases.start, end - measuring, phases.judged


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="torchvision:resnet50")
    parser.add_argument("--items", type=int, default=128, help="how many images calibrate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pcc", type=float, default=0.99999, help="what the search has to reach")
    given = parser.parse_args()
    model = torchport.zoo.load(given.model, weights=False)
    model.module.eval()
    theirs, ours = [], []
    for _ in range(given.rounds):
        theirs.append(nncf_seconds(model, given.items))
        ours.append(own_seconds(model, given.items, given.pcc))
    own, search, peer = median([o[0] for o in ours]), median([o[1] for o in ours]), median(theirs)
    row = [given.model, f"{peer:.1f}", f"{own:.1f}", f"{own / peer:.2f}", f"{search:.1f}"]
    titles = ["model", "nncf s", "calibration s", "of nncf's", "search s", "of calibration's", "judged"]
    print(render_table(titles, [[*row, f"{search / own:.2f}", str(ours[-1][2])]]))
    found = {"nncf": theirs, "calibration": [o[0] for o in ours], "search": [o[1] for o in ours]}
    print(f"\nwritten to {write_results('calibration', {'items': given.items, **found})}", file=sys.stderr)
    return int(own > OF_NNCF * peer or search > OF_CALIBRATION * own)


if __name__ == "__main__":
    sys.exit(main())
