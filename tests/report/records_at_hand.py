"""Records for the tests of the report, written by hand."""

from pathlib import Path

from torchport.records import BenchRecord, Coverage, StayedOp, file_name, write_record

GROUND = {"versions": {"torch": "2.13.0"}, "machine": {"processor": "Some CPU"}}


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


def write(directory: Path, *records: BenchRecord | Coverage) -> Path:
    for record in records:
        folder = "bench" if isinstance(record, BenchRecord) else "coverage"
        write_record(record, directory / folder / file_name(record.model, record.target))
    return directory
