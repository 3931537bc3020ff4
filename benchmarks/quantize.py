"""Times models in int8 against float32, and against nncf and onnxruntime's quantizer by hand, interleaved.

    python benchmarks/quantize.py
    python benchmarks/quantize.py --models torchvision:resnet18 --items 4 --seconds 10

`chosen` is the plan for OpenVINO, and is what counts. Where the processor has VNNI or AMX, it must
be at least twice as fast as float32, three times for ResNet-50, and no more than 3 % slower than nncf
and OpenVINO, or onnxruntime, without torchport. On other processors, all may stay in float, and it must
not be slower than float32. `int8` has every layer in int8, `onnxruntime` is the plan for that
target. `in int8` is the fraction of the FLOPs of convolutions and linear layers for which OpenVINO's runtime
graph has int8 kernels: at least 95 % where the processor has VNNI or AMX. Weights are random, and batch
norms have the statistics of the items, as training would leave them; the table also shows the PCC of int8.
Models are compiled as `frozen`, like those by hand: nothing checks whether a weight has changed.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nncf
import onnxruntime
import openvino
import torch
from common import Turns, median, render_table, time_in_turns, write_results
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import torchport
from torchport.quantization import AccuracyBudget
from torchport.targets.processor import has_int8

MODELS = (
    "torchvision:resnet50", "torchvision:mobilenet_v3_large", "torchvision:vit_b_16", "hf:bert-base-uncased",
)  # fmt: skip
FASTER = {"torchvision:resnet50": 3.0, "torchvision:vit_b_16": 1.0}  # others 2.0
OTHER = "onnxruntime"
BY_HAND = ("nncf by hand", "onnxruntime by hand")
OURS = ("chosen", OTHER)  # what each is compared with
SLOWER_THAN_BY_HAND, SLOWER_THAN_FLOAT = 1.03, 1.05
IN_INT8 = 0.95


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


def settle_norms(module: torch.nn.Module, items: Sequence[object]) -> None:
    """Set batch norms to the statistics of the items: with a new model's, activations vanish on the way."""
    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        module(*map(torch.cat, zip(*map(_leaves, items), strict=True)))
    module.eval()


def int8_share(compiled: torchport.CompiledModel) -> float:
    """Return the fraction of FLOPs of convolutions and linear layers that OpenVINO computes in int8."""
    whole = in_int8 = 0.0
    for island in compiled._first.program.islands.values():
        for node in island.runner.compiled.model.get_runtime_model().get_ops():
            facts = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
            if facts["layerType"] not in ("Convolution", "FullyConnected"):
                continue
            data, weight = (list(port.get_partial_shape().to_shape()) for port in node.inputs()[:2])
            result = list(node.output(0).get_partial_shape().to_shape())
            is_convolution = facts["layerType"] == "Convolution"
            flops = 2.0 * math.prod(result) * (math.prod(weight) / result[1] if is_convolution else data[-1])
            whole += flops
            in_int8 += flops * (facts["runtimePrecision"] in ("i8", "u8"))
    return in_int8 / whole


def by_hand(model: torchport.zoo.Model, items: list[object]) -> openvino.CompiledModel:
    """Return a model quantized by nncf and compiled by OpenVINO, without torchport."""
    exported = torch.export.export(model.module, tuple(model.args), dict(model.kwargs))
    converted = openvino.convert_model(exported)
    kind = nncf.ModelType.TRANSFORMER if "bert" in model.name or "vit" in model.name else None
    shapes = [leaf.shape for leaf in (model.kwargs.values() or model.args)]
    converted.reshape(dict(zip(converted.inputs, map(list, shapes), strict=True)))
    values = [
        [leaf.numpy() for leaf in (item.values() if isinstance(item, dict) else item)] for item in items
    ]
    quantized = nncf.quantize(converted, nncf.Dataset(values), model_type=kind, subset_size=len(values))
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(quantized, "CPU", config)


class _Reader(CalibrationDataReader):
    """Gives onnxruntime's quantizer its items, one after the other."""

    def __init__(self, items: Sequence[dict[str, object]]) -> None:
        self._items = iter(items)

    def get_next(self) -> dict[str, object] | None:
        """Return the next item; None after the last one."""
        return next(self._items, None)


def by_onnxruntime(model: torchport.zoo.Model, items: list[object]) -> onnxruntime.InferenceSession:
    """Return a model quantized by onnxruntime, as its documentation advises for a CPU."""
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, quantized = (
            str(Path(folder, f"{name}.onnx")) for name in ("plain", "prepared", "int8")
        )
        exported = torch.onnx.export(
            model.module, tuple(model.args), kwargs=dict(model.kwargs), dynamo=True, verbose=False
        )
        exported.save(plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        names = [port.name for port in onnxruntime.InferenceSession(plain).get_inputs()]
        feeds = [
            {name: leaf.numpy() for name, leaf in zip(names, _leaves(item), strict=True)} for item in items
        ]
        quantize_static(
            prepared,
            quantized,
            _Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        return onnxruntime.InferenceSession(quantized, options)


def _leaves(item: object) -> list[torch.Tensor]:
    return list(item.values() if isinstance(item, dict) else item)  # type: ignore[call-overload]  # one or the other


def measure(name: str, count: int, turns: Turns) -> dict[str, float]:
    """Return the seconds of a call of each, and the PCC of int8."""
    model = torchport.zoo.load(name, weights=False)
    module, args, kwargs = model.module.eval(), tuple(model.args), dict(model.kwargs)
    items = items_of(model, count)
    settle_norms(module, items)
    budget = AccuracyBudget(pcc=0.01)
    quantized = torchport.quantize(module, items, speed=False, accuracy=budget, name=name)
    planned = torchport.quantize(module, items, accuracy=budget, name=name)
    on_other = torchport.quantize(module, items, target=OTHER, accuracy=budget, name=name)
    options = {"speed_trial": False, "frozen": True}  # models by hand are not checked for changes either
    floats = torchport.compile(module, args, kwargs, options=options)
    ours = torchport.compile(quantized, args, kwargs, options=options)
    chosen = torchport.compile(planned, args, kwargs, options=options)
    other = torchport.compile(on_other, args, kwargs, target=OTHER, options=options)
    theirs = by_hand(model, items)
    request = theirs.create_infer_request()
    session = by_onnxruntime(model, items)
    values = [leaf.numpy() for leaf in (kwargs.values() or args)]
    feed = {port.name: value for port, value in zip(session.get_inputs(), values, strict=True)}
    calls = {
        "float32": lambda: floats(*args, **kwargs),
        "int8": lambda: ours(*args, **kwargs),
        "chosen": lambda: chosen(*args, **kwargs),
        OTHER: lambda: other(*args, **kwargs),
        "nncf by hand": lambda: request.infer(values),
        "onnxruntime by hand": lambda: session.run(None, feed),
    }
    with torch.no_grad():
        times = time_in_turns(calls, turns)
    facts = {"pcc": float(quantized.report.pcc or 0.0), "in_int8": int8_share(chosen)}
    return {key: median(taken) for key, taken in times.items()} | facts


def main() -> int:
    """Measure, print the table, and write the JSON; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--items", type=int, default=16, help="how many items calibrate")
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time a model for")
    given = parser.parse_args()
    found = {name: measure(name, given.items, Turns(seconds=given.seconds)) for name in given.models}
    rows = [
        [
            name,
            *[f"{1e3 * row[key]:.2f}" for key in ("float32", "int8", "chosen", OTHER, *BY_HAND)],
            f"{row['float32'] / row['chosen']:.2f}",
            *[f"{row[own] / row[key]:.2f}" for own, key in zip(OURS, BY_HAND, strict=True)],
            f"{row['in_int8']:.1%}",
            f"{row['pcc']:.4f}",
        ]
        for name, row in found.items()
    ]
    titles = ["model", "float32 ms", "int8 ms", "chosen ms", f"{OTHER} ms", *[f"{key} ms" for key in BY_HAND]]
    ratios = [f"{own} / {key}" for own, key in zip(OURS, BY_HAND, strict=True)]
    titles += ["faster", *ratios, "in int8", "PCC"]
    print(render_table(titles, rows))
    written = write_results("quantize", {"int8_instructions": has_int8(), "models": found})
    print(f"\nwritten to {written}", file=sys.stderr)
    return int(any(_misses(name, row) for name, row in found.items()))


def _misses(name: str, row: dict[str, float]) -> bool:
    """Whether a model is slower than allowed on this processor."""
    if not has_int8():
        return row["chosen"] > SLOWER_THAN_FLOAT * row["float32"]
    own = row["chosen"]
    by_hand = min(row[key] for key in BY_HAND)
    is_slow = row["float32"] < FASTER.get(name, 2.0) * own or own > SLOWER_THAN_BY_HAND * by_hand
    return is_slow or row["in_int8"] < IN_INT8


if __name__ == "__main__":
    sys.exit(main())
