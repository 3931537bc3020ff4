"""Reads quantization plans from files."""

from __future__ import annotations

from pathlib import Path

from torchport.records import read_record
from torchport.records.quantization import QuantizationPlan


def read_plan(path: str | Path) -> QuantizationPlan:
    """Read a plan that `QuantizedModel.save_plan` wrote, edited or not.

    Args:
        path: the file.

    Returns:
        The plan, which `options={"plan": plan}` of `torchport.quantize` takes.

    Raises:
        RecordError: the file cannot be read, is not a plan, or has invalid values; names the file.
    """
    return read_record(Path(path), QuantizationPlan)
