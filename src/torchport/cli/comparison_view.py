"""Shows how a compiled model's results differ from the original model's."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.records import Comparison

_MOST_ROWS = 20


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print a row per output; if there are too many, failing outputs come first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("Output", overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("PCC", justify="right", no_wrap=True)
    table.add_column("Max absolute error", justify="right")
    table.add_column("Max relative error", justify="right")
    table.add_column("Detail", overflow="fold")
    rows = comparison.outputs
    if len(rows) > _MOST_ROWS:
        rows = tuple(sorted(rows, key=lambda row: row.ok))[:_MOST_ROWS]
    for row in rows:
        table.add_row(
            Text(row.path),
            "✅" if row.ok else "❌",
            f"{row.pcc:.6f}",
            f"{row.max_absolute:.3g}",
            f"{row.max_relative:.3g}",
            Text(row.detail),
        )
    if not any(row.detail for row in rows):
        table.columns.pop()
    console.print(table)
    if len(comparison.outputs) > len(rows):
        console.print(f"and {len(comparison.outputs) - len(rows)} more outputs; all with --json", style="dim")
