"""Shows what a target takes of a model, and why the rest stays."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.text import count, percent, quantity
from torchport.records import Coverage
from torchport.report import StayedGroup, group_stayed

_MOST_PLACES = 3


def show_coverage(coverage: Coverage, console: Console) -> None:
    """Print the counts, and a table of what stays."""
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
    console.print(facts)
    if coverage.stayed:
        console.print()
        console.print(_stayed_table(coverage))


def facts_table() -> Table:
    """Return a table for names and values without lines."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _stayed_table(coverage: Coverage) -> Table:
    table = Table(
        title="What stays on the host, and why",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("Op", overflow="fold", min_width=12, ratio=3)
    table.add_column("Times", justify="right", no_wrap=True)
    table.add_column("Reason", no_wrap=True)
    table.add_column("Why, and what would change it", overflow="fold", ratio=5)
    table.add_column("Where", overflow="fold", ratio=5)
    for group in group_stayed(coverage.stayed):
        table.add_row(
            Text(group.op), str(group.count), Text(group.reason), _explanation(group), _places(group)
        )
    return table


def _explanation(group: StayedGroup) -> Text:
    text = Text(group.detail)
    if group.remedy:
        text.append(f"\n→ {group.remedy}", style="dim")
    return text


def _places(group: StayedGroup) -> Text:
    text = Text()
    for i, (module_path, source) in enumerate(group.places[:_MOST_PLACES]):
        text.append(("\n" if i else "") + (module_path or "(the model itself)"))
        if source:
            text.append(f" {source}", style="dim")
    more = len(group.places) - _MOST_PLACES
    if more > 0:
        text.append(f"\nand {count(more, 'more place')}; all with --json", style="dim")
    return text
