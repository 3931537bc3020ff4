"""Shows a profile: where the time goes, by op or aggregated, compared with the roofline."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.coverage_view import facts_table
from torchport.cli.text import count, quantity, seconds
from torchport.records import FoldedTime, FoldKey, Profile, ProfiledOp

BY_OP = "each"


def show_profile(profile: Profile, console: Console, by: FoldKey | str = BY_OP, most: int = 30) -> None:
    """Print a profile: the facts, a table, and a warning about reference kernels.

    Args:
        profile: the measured profile.
        console: where to print.
        by: a row per kernel (`each`), or the times summed by `op`, `module`, `line` or `kernel`.
        most: the maximum number of rows; the longest times come first.
    """
    facts = facts_table()
    facts.add_row("Per call", seconds(profile.seconds))
    facts.add_row(
        "In kernels", f"{seconds(profile.measured_seconds)}, in {count(len(profile.ops), 'kernel')}"
    )
    limits = f"{quantity(profile.peak_flops, 'FLOP/s')}, {quantity(profile.bandwidth, 'B/s')}"
    facts.add_row("Roofline", limits)
    for island, spent in profile.unmeasured.items():
        facts.add_row(island, f"{seconds(spent)}; its engine reports no times per kernel")
    console.print(facts)
    console.print()
    if by == BY_OP:
        rows = sorted(profile.ops, key=lambda row: -row.seconds)
        console.print(_ops_table(profile, rows[:most]))
        left = len(rows) - most
    else:
        folded = profile.fold(by)  # type: ignore[arg-type]  # the command permits no others
        console.print(_folded_table(profile, folded[:most], by))
        left = len(folded) - most
    if left > 0:
        console.print(f"and {count(left, 'more row')}; --json lists all", style="dim")
    if profile.reference_ops:
        _warn(profile, console)


def _ops_table(profile: Profile, rows: list[ProfiledOp]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("time", "share", "of roofline"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("op", "kernel", "precision", "where"):
        table.add_column(title, no_wrap=title == "precision", overflow="fold")
    table.add_column("module", overflow="fold")
    for row in rows:
        fused = f" + {len(row.fused)} fused" if row.fused else ""
        table.add_row(
            *_times(profile, row.seconds, row.roofline_seconds),
            Text(f"{row.op or '-'}{fused}"),
            Text(row.kernel, style="yellow" if row.is_reference else ""),
            row.precision,
            row.place,
            Text(row.module_path),
        )
    return table


def _folded_table(profile: Profile, rows: tuple[FoldedTime, ...], by: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("time", "share", "of roofline", "count"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(by, overflow="fold")
    for row in rows:
        times = _times(profile, row.seconds, row.roofline_seconds)
        table.add_row(*times, str(row.count), Text(row.key or "-"))
    return table


def _times(profile: Profile, spent: float, roofline: float) -> tuple[str, str, str]:
    whole = profile.measured_seconds
    share = f"{100 * spent / whole:.1f}%" if whole else "-"
    return seconds(spent), share, f"{100 * roofline / spent:.0f}%" if spent and roofline else "-"


def _warn(profile: Profile, console: Console) -> None:
    """Warn which ops run in reference kernels, and how much time they take."""
    found = profile.reference_ops
    spent = sum(row.seconds for row in found)
    names = ", ".join(dict.fromkeys(row.op or row.kernel for row in found))
    text = (
        f"\n⚠ reference kernels of {profile.target}, which are plain loops, take {seconds(spent)} "
        f"in {names}; list these ops in keep_ops to run them in torch"
    )
    console.print(Text(text, style="yellow"))
