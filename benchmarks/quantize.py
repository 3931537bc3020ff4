"""Times models in int8 against float32 and against nncf used by hand, on OpenVINO; in turns, in one process.

    python benchmarks/quantize.py
    python benchmarks/quantize.py --models torchvision:resnet18 --items 4 --seconds 10

Where the processor has VNNI or AMX, int8 must be at least twice as fast as float32, and no more than 3 %
slower than what nncf and OpenVINO give without torchport. Weights are random: the PCC stands beside it.
"""

from __future__ import annotations

import argparse
import sys

import nncf
import openvino
import torch
from common import Turns, median, render_table, time_in_turns, write_results

import torchport
from torchport.quantization import AccuracyBudget
from torchport.quantization.processor import has_int8

MODELS = (
    "torchvision:resnet50", "torchvision:mobilenet_v3_large", "torchvision:vit_b_16", "hf:bert-base-uncased",
)  # fmt: skip
FASTER, SLOWER_THAN_BY_HAND = 2.0, 1.03


def items_of(
    model: torchport.zoo.Model, count: int
) -> list[dict[str, torch.Tensor] | tuple[torch.Tensor, ...]]:
    """Return inputs to calibrate with."""
    if model.kwargs:
        return [dict(model.kwargs) for _ in range(count)]
    return [
        tuple(torch.randn_like(leaf) if leaf.is_floating_point() else leaf for leaf in model.args)
        for _ in range(count)
    ]


def by_hand(model: torchport.zoo.Model, items: list[object]) -> openvino.CompiledModel:
    """Return what nncf and OpenVINO make of a model without torchport."""
    example = dict(model.kwargs) or tuple(model.args)
    converted = openvino.convert_model(model.module, example_input=example)
    kind = nncf.ModelType.TRANSFORMER if "bert" in model.name or "vit" in model.name else None
    shapes = [leaf.shape for leaf in (model.kwargs.values() or model.args)]
    converted.reshape(dict(zip(converted.inputs, map(list, shapes), strict=True)))
    values = [
        [leaf.numpy() for leaf in (item.values() if isinstance(item, dict) else item)] for item in items
    ]
    quantized = nncf.quantize(converted, nncf.Dataset(values), model_type=kind, subset_size=len(values))
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(quantized, "CPU", config)


def measure(name: str, count: int, turns: Turns) -> dict[str, float]:
    """Return the seconds of a call of each, and the PCC of int8."""
    model = torchport.zoo.load(name, weights=False)
    module, args, kwargs = model.module.eval(), tuple(model.args), dict(model.kwargs)
    items = items_of(model, count)
    quantized = torchport.quantize(module, items, speed=False, accuracy=AccuracyBudget(pcc=0.01), name=name)
    options = {"speed_trial": False}
    floats = torchport.compile(module, args, kwargs, options=options)
    ours = torchport.compile(quantized, args, kwargs, options=options)
    theirs = by_hand(model, items)
    request = theirs.create_infer_request()
    values = [leaf.numpy() for leaf in (kwargs.values() or args)]
    calls = {
        "float32": lambda: floats(*args, **kwargs),
        "int8": lambda: ours(*args, **kwargs),
        "nncf by hand": lambda: request.infer(values),
    }
    with torch.no_grad():
        times = time_in_turns(calls, turns)
    return {key: median(taken) for key, taken in times.items()} | {"pcc": float(quantized.report.pcc or 0.0)}


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if a limit is missed where the processor has int8."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--items", type=int, default=16, help="how many items calibrate")
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time a model for")
    given = parser.parse_args()
    found = {name: measure(name, given.items, Turns(seconds=given.seconds)) for name in given.models}
    rows = [
        [
            name,
            *[f"{1e3 * row[key]:.2f}" for key in ("float32", "int8", "nncf by hand")],
            f"{row['float32'] / row['int8']:.2f}",
            f"{row['int8'] / row['nncf by hand']:.2f}",
            f"{row['pcc']:.4f}",
        ]
        for name, row in found.items()
    ]
    titles = ["model", "float32 ms", "int8 ms", "nncf by hand ms", "faster", "of nncf's time", "PCC"]
    print(render_table(titles, rows))
    written = write_results("quantize", {"int8_instructions": has_int8(), "models": found})
    print(f"\nwritten to {written}", file=sys.stderr)
    missed = any(
        row["float32"] < FASTER * row["int8"] or row["int8"] > SLOWER_THAN_BY_HAND * row["nncf by hand"]
        for row in found.values()
    )
    return int(has_int8() and missed)


if __name__ == "__main__":
    sys.exit(main())
