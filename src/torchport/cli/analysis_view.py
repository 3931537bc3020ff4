"""Shows an analysis: the module tree with costs, the totals, the most expensive ops."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.coverage_view import facts_table
from torchport.cli.text import count, percent, quantity, seconds
from torchport.records import Analysis, Cost, OpConfigurations, Roofline, tree_rows

_MOST_ROWS = 60
_MOST_OPS = 8


def show_analyses(
    analyses: Sequence[Analysis],
    table: OpConfigurations,
    estimates: Sequence[Roofline],
    console: Console,
    depth: int,
) -> None:
    """Print each model's tree and totals, and one table of the most expensive ops across the models.

    Args:
        analyses: the models' analyses.
        table: the configurations of their ops.
        estimates: a roofline estimate for each model; may be empty.
        console: where to print.
        depth: how many levels of the tree to show.
    """
    for place, analysis in enumerate(analyses):
        console.print(f"{analysis.model}", style="bold", markup=False)
        console.print(_tree(analysis.cost, depth))
        console.print(_totals(analysis, estimates[place] if estimates else None))
        console.print()
    console.print(f"Most expensive ops of {count(len(table.configurations), 'configuration')}", style="bold")
    console.print(_ops(table))


def _tree(cost: Cost, depth: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("Module", no_wrap=True)
    table.add_column("Class", no_wrap=True)
    table.add_column("Output", no_wrap=True)
    for heading in ("Parameters", "FLOPs", "Share", "Memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = tree_rows(cost, depth)
    for row in rows[:_MOST_ROWS]:
        shapes = row.cost.output_shapes
        more = f" (+{len(shapes) - 1})" if len(shapes) > 1 else ""
        table.add_row(
            Text("  " * row.depth + row.name),
            Text(row.cost.class_name),
            Text(f"{shapes[0]}{more}" if shapes else "-"),
            f"{row.cost.parameters:,}",
            quantity(row.cost.flops, ""),
            percent(row.cost.flops, cost.flops) if cost.flops else "-",
            quantity(row.cost.peak_bytes, "B", base=1024),
        )
    if len(rows) > _MOST_ROWS:
        table.add_row(Text(f"… {count(len(rows) - _MOST_ROWS, 'more module')}; cost.json has all"))
    return table


def _totals(analysis: Analysis, estimate: Roofline | None) -> Table:
    cost, modules, ops = analysis.cost, analysis.modules.metadata, analysis.ops.metadata
    facts = facts_table()
    facts.add_row("Modules", f"{modules.total_modules} ({modules.unique_modules} unique)")
    facts.add_row("Ops", f"{ops.total_ops} ({ops.unique_ops} unique)")
    facts.add_row("Parameters", f"{cost.parameters:,}, {quantity(cost.parameter_bytes, 'B', base=1024)}")
    backward = f", {quantity(cost.backward_flops, 'FLOPs')} of them backward" if cost.backward else ""
    vector = quantity(cost.vector_flops, "FLOPs")
    facts.add_row(
        "Arithmetic", f"{quantity(cost.flops, 'FLOPs')} in products{backward}; {vector} in the rest"
    )
    moved = quantity(cost.bytes_read + cost.bytes_written, "B", base=1024)
    facts.add_row("Data moved", f"{moved}; {cost.arithmetic_intensity:.1f} FLOPs per byte")
    if cost.peak is not None:
        peak = ("about " if cost.peak.is_estimate else "") + quantity(cost.peak.bytes, "B", base=1024)
        place = f"{cost.peak.op} in {cost.peak.module_path}, {cost.peak.phase}"
        facts.add_row("Peak memory", Text(f"{peak} besides weights and inputs, at {place}"))
        facts.add_row("With weights", quantity(cost.total_bytes, "B", base=1024))
    if estimate is not None:
        bound = percent(round(estimate.memory_seconds * 1e12), round(estimate.seconds * 1e12))
        facts.add_row("Roofline", f"{seconds(estimate.seconds)}, {bound} of it bound by memory")
    for op, times in cost.uncounted.items():
        facts.add_row("Not counted", Text(f"{times} × {op}: cost unknown"))
    if cost.note:
        facts.add_row("Note", Text(cost.note))
    return facts


def _ops(table: OpConfigurations) -> Table:
    view = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    view.add_column("Op", no_wrap=True)
    view.add_column("Inputs", overflow="fold")
    view.add_column("Calls", justify="right")
    view.add_column("FLOPs", justify="right", no_wrap=True)
    view.add_column("Share", justify="right")
    view.add_column("First in", overflow="fold")
    for row in table.configurations[:_MOST_OPS]:
        view.add_row(
            Text(row.op_name),
            Text(", ".join(f"{kind.dtype}[{kind.shape}]" for kind in row.inputs.values())),
            str(row.count),
            quantity(row.flops, ""),
            percent(row.flops, table.total_flops) if table.total_flops else "-",
            Text(row.examples[0].partition(": ")[2] if row.examples else ""),
        )
    return view
