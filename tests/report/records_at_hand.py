"""Records for the tests of the report, written by hand."""

from pathlib import Path

from torchport.records import (
    Accuracy,
    Analysis,
    BenchRecord,
    Cost,
    Coverage,
    DifferenceHistogram,
    EngineTry,
    GraphModule,
    GraphOp,
    MemoryPeak,
    ModelGraph,
    ModuleCost,
    ModuleMetadata,
    ModuleTable,
    OpCost,
    OpKind,
    OpMetadata,
    OpOccurrence,
    OpTable,
    StayedOp,
    TensorComparison,
    TensorType,
    Tries,
    UniqueModule,
    UniqueOp,
    Verdict,
    file_name,
    write_record,
)
from torchport.records.quantization import LayerReport, QuantizationReport

GROUND = {"versions": {"torch": "2.13.0"}, "machine": {"processor": "Some CPU"}}


def quantization() -> QuantizationReport:
    """Return the measurements of a quantized model with three layers, one of which stays in float."""
    layers = (
        LayerReport("head", "linear", "float", "sensitive", 11.5, 18.25, 0.991),
        LayerReport("stem", "conv2d", "int8", "default", 31.0, float("inf"), 1.0, clipped=0.0025),
        LayerReport(
            "body", "conv2d", "int8", "default", 35.5, 29.0, 0.9995, seconds_float=2e-3, seconds=1e-3
        ),
    )
    return QuantizationReport(
        "net.py:load", "ptq", "openvino", layers, 24, 8, pcc=0.99987, bytes_float=4_000_000, bytes=1_250_000
    )


def tries() -> Tries:
    """Return the outcomes of an engine that is fast, and of one that crashed."""
    rows = (
        EngineTry("eager", "ok", 0.02, 0.02, 1.0, 0.0, 0.0, 0, None, 0),
        EngineTry(
            "swift",
            "ok",
            0.005,
            0.02,
            0.9999,
            1e-6,
            2.25,
            3_000_000,
            None,
            2,
            fastest=0.004,
            eager_fastest=0.016,
        ),
        EngineTry("broken", "crashed", reason="its process | ended"),
    )
    return Tries("torchvision:resnet18", "latency", "swift", rows, "machine")


def bench(model: str = "torchvision:resnet18", target: str = "openvino", **changes) -> BenchRecord:
    values = {
        "status": "ok", "batch": 4, "ops_before": 70, "unique_before": 12, "ops_remain": 3,
        "unique_remain": 2, "transfers": 2, "original_time": 0.030, "compiled_time": 0.012,
        "first_run_time": 1.5, "pcc": 0.99999951, "max_absolute": 1e-5, "runs": 9,
    }  # fmt: skip
    return BenchRecord(model, target, **(values | GROUND | changes))


def failed(model: str = "hf:broken", error: str = "no such thing") -> BenchRecord:
    return BenchRecord(model, "openvino", "failed", error=error)


def stayed(op: str = "aten.cumsum.default", module_path: str = "encoder.layer.0", **changes) -> StayedOp:
    values = {
        "node": "cumsum", "reason": "no_lowering", "detail": "nothing computes it",
        "remedy": "write it as a product", "source": "model.py:12 in forward", "flops": 5, "bytes": 8,
    }  # fmt: skip
    return StayedOp(op=op, module_path=module_path, **(values | changes))


def coverage(model: str = "torchvision:resnet18", *ops: StayedOp) -> Coverage:
    return Coverage(model, "openvino", 70, 12, len(ops), 1, 2, 1000, 900, 400, 100, (), ops)


def write(directory: Path, *records: BenchRecord | Coverage | ModelGraph | Accuracy) -> Path:
    for record in records:
        folder = record.schema.split("/")[0].removeprefix("torchport.")
        write_record(record, directory / folder / file_name(record.model, record.target))
    return directory


def graph(model: str = "torchvision:resnet18", target: str = "openvino") -> ModelGraph:
    """Return a graph of a convolution and an addition on the target, and a cumulative sum on the host."""
    tensors = {"input": TensorType("1x3x8x8", "float32"), "output": TensorType("1x4x4x4", "float32")}
    kinds = (
        OpKind("aten.convolution.default", {"stride": [2, 2]}, tensors, 100, 50),
        OpKind("aten.cumsum.default", {}, {"output": tensors["output"]}, 0, 8),
        OpKind("aten.add.Tensor", {}, {"output": tensors["output"]}, 0, 12),
    )
    return ModelGraph(
        model,
        target,
        (GraphModule("", "Net"), GraphModule("layer.0", "Block")),
        ("model.py:12 in forward",),
        ("island_0",),
        (Verdict(False, "no_lowering", "nothing computes it", "write it as a product"),),
        kinds,
        (
            GraphOp("conv", 0, 1, (), 0, 0),
            GraphOp("cumsum", 1, 1, (0,), 0, -1, 0),
            GraphOp("add", 2, 0, (0, 1), 0, 0),
        ),
    )


def accuracy(model: str = "torchvision:resnet18", target: str = "openvino") -> Accuracy:
    output = TensorComparison("logits", False, float("nan"), float("inf"), 0.5, "it is not finite")
    return Accuracy(model, target, (output,), (DifferenceHistogram("logits", 3, (0, 1), 2),))


def analysis(timeline: tuple[int, ...] = (16, 32, 16)) -> Analysis:
    """Two layers of 4 by 4 with a ReLU between them, on one sample."""
    tensor = TensorType("1x4", "float32")
    layer = UniqueModule(
        "mod_001", "Linear", "a", "(root)", ("1x4",), ("1x4",), ("float32",), ("float32",), {"bias": True},
        ("a", "b"), calls=2,
    )  # fmt: skip
    modules = ModuleTable(ModuleMetadata("net.py:load", "load", "Net", 3, 2, "now"), (layer,))
    places = [OpOccurrence("mod_001", "linear", "a"), OpOccurrence("mod_001", "linear", "b")]
    ops = (
        UniqueOp(
            "op_000", "torch.nn.functional.linear", "mod_001", "Linear", {},
            {"input": tensor, "output": tensor}, tuple(places), "aten.linear.default", flops=32, bytes=96,
        ),
        UniqueOp(
            "op_001", "torch.relu", "mod_000", "Net", {}, {"output": tensor},
            (OpOccurrence("mod_000", "relu", "(root)"),), "aten.relu.default", vector_flops=4, bytes=32,
        ),
    )  # fmt: skip
    calls = (
        OpCost("op_000", "linear", "a", "forward", 32, 0, 80, 16, 16, ()),
        OpCost("op_001", "relu", "(root)", "forward", 0, 4, 16, 16, 16, (0,)),
        OpCost("op_000", "linear", "b", "forward", 32, 0, 80, 16, 16, (1,)),
    )
    rows = (
        ModuleCost("(root)", "Net", 1, ("1x4",), 40, 160, 64, 4, 176, 48, 0, 16, 32),
        ModuleCost("a", "Linear", 1, ("1x4",), 20, 80, 32, 0, 80, 16, 0, 16, 16),
        ModuleCost("b", "Linear", 1, ("1x4",), 20, 80, 32, 0, 80, 16, 0, 16, 16),
    )
    peak = MemoryPeak(32, 32, 0, 1, "aten.relu.default", "(root)", "forward", "")
    cost = Cost(
        "Net", False, 64, 0, 4, 176, 48, 0.3, 40, 40, 160, 0, 16, 32, peak, 208, rows, calls, timeline, {}
    )
    return Analysis("net.py:load", modules, OpTable(OpMetadata("m.json", 3, 2, "now"), ops), cost)
