"""Plans of quantized models, in files."""

from __future__ import annotations

from pathlib import Path

from torchport.errors import QuantizationError, one_line
from torchport.records import parse_object
from torchport.records.quantization import QuantizationPlan


def read_plan(path: str | Path) -> QuantizationPlan:
    """Read a plan that `QuantizedModel.save_plan` wrote, edited or not.

    Args:
        path: the file.

    Returns:
        The plan, which `options={"plan": plan}` of `torchport.quantize` takes.

    Raises:
        QuantizationError: the file cannot be read.
        RecordError: it is no plan, or says something that a plan cannot.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QuantizationError(f"the plan cannot be read: {one_line(error)}", where=str(path)) from error
    return QuantizationPlan.from_json(parse_object(text, str(path)))
