"""The results table with the columns of torch_ttnn's README."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchport.records import BenchRecord
from torchport.report.markdown_table import align, escape

ABSENT = "N/A"

COLUMNS: dict[str, Callable[[BenchRecord], object]] = {
    "Model": lambda row: row.model,
    "Run Success": lambda row: "No" if row.status == "failed" else "Yes",
    "Torch Ops (Before)": lambda row: row.ops_before,
    "Torch Ops (Remain)": lambda row: row.ops_remain,
    "To/From_Device Ops": lambda row: row.transfers,
    "Original Run Time (s)": lambda row: _seconds(row.original_time),
    "Compiled Run Time(s)": lambda row: _seconds(row.compiled_time, " (estimate)" if row.simulated else ""),
    "Accuracy": lambda row: None if row.pcc is None else f"{row.pcc:.6f}",
}


def render_results(rows: Sequence[BenchRecord]) -> str:
    """Return the table of results as Markdown: times in seconds, estimates for a simulated device.

    Args:
        rows: the records of `torchport bench`, or of a survey on a target.
    """
    cells = [[_text(column(row)) for column in COLUMNS.values()] for row in rows]
    return "\n".join(align(list(COLUMNS), cells, [False, False] + [True] * (len(COLUMNS) - 2)))


def _seconds(value: float | None, remark: str = "") -> str | None:
    return None if value is None else f"{value:.6g}{remark}"


def _text(value: object) -> str:
    return ABSENT if value is None else escape(str(value))
