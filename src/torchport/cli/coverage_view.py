"""Shows how much of a model runs on a target, and why the rest stays on the host."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchport.cli.text import count, percent, quantity
from torchport.records import Coverage
from torchport.report import StayedGroup, group_stayed

_MOST_PLACES = 3


def show_coverage(coverage: Coverage, console: Console, extra_facts: Mapping[str, str] | None = None) -> None:
    """Print the counts, with `extra_facts` below them, and the ops that stay on the host."""
    taken = coverage.ops_before - coverage.ops_remain
    facts = facts_table()
    facts.add_row("Torch ops", f"{coverage.ops_before} ({coverage.unique_before} unique)")
    facts.add_row("Remain", f"{coverage.ops_remain} ({coverage.unique_remain} unique)")
    facts.add_row(
        f"On {coverage.target}",
        f"{percent(taken, coverage.ops_before)} of ops, "
        f"{percent(coverage.flops_covered, coverage.flops)} of {quantity(coverage.flops, 'FLOPs')}, "
        f"{percent(coverage.bytes_covered, coverage.bytes)} of {quantity(coverage.bytes, 'B')}, "
        f"in {count(len(coverage.islands), 'island')}",
    )
    facts.add_row("To/from device", count(coverage.transfers, "tensor"))
    if coverage.host_views:
        facts.add_row("Views", f"{count(len(coverage.host_views), 'op')} on the host that move no data")
    if coverage.conditional:
        facts.add_row(
            "If indices fit", f"{count(len(coverage.conditional), 'op')}: the weights have no values to check"
        )
    for name, value in (extra_facts or {}).items():
        facts.add_row(name, value)
    console.print(facts)
    if coverage.stayed:
        console.print("\nWhat stays on the host, and why", style="bold")
    for group in group_stayed(coverage.stayed):
        _show_group(group, console)


def facts_table() -> Table:
    """Return a borderless two-column table for names and values."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=14)
    table.add_column(overflow="fold")
    return table


def _show_group(group: StayedGroup, console: Console) -> None:
    """Print a block, not a table row: module paths and source lines are too long for columns."""
    head = (
        Text(f"  {group.count} × ").append(group.op, style="bold").append(f"  {group.reason}", style="yellow")
    )
    console.print(head, soft_wrap=True)
    console.print(Padding(Text(group.detail), (0, 0, 0, 6)))
    if group.remedy:
        console.print(Padding(Text(f"→ {group.remedy}"), (0, 0, 0, 6)))
    for module_path, source in group.places[:_MOST_PLACES]:
        place = Text(f"      at {module_path or '(the model itself)'}")
        if source:
            place.append(f"\n         {source}", style="dim")
        # Not wrapped, so that the path can be copied in one piece.
        console.print(place, soft_wrap=True)
    more = len(group.places) - _MOST_PLACES
    if more > 0:
        console.print(f"      and {count(more, 'more place')}; --json lists all", style="dim")
