"""Shows the cost of generation: the prompt, a decoding step, and the KV cache."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.coverage_view import facts_table
from torchport.cli.text import count, quantity, seconds
from torchport.records import GenerationCost, PhaseCost


def show_generation_costs(costs: Sequence[GenerationCost], console: Console) -> None:
    """Print each model's generation costs.

    Args:
        costs: the models' costs.
        console: where to print.
    """
    for cost in costs:
        console.print(cost.model, style="bold", markup=False)
        facts = facts_table()
        weights = quantity(cost.parameter_bytes, "B", base=1024)
        facts.add_row("Parameters", f"{cost.parameters:,}, {weights}")
        size = quantity(cost.cache_bytes, "B", base=1024)
        more = quantity(cost.cache_bytes_per_token, "B", base=1024)
        facts.add_row(
            "Cache",
            f"{size} ({cost.cache_dtype}) in {count(cost.cache_layers, 'layer')}, for "
            f"{count(cost.batch, 'sequence')} of {count(cost.length, 'token')}; {more} per additional token",
        )
        console.print(facts)
        console.print(_phases(cost))
        for phase in (cost.prefill, cost.step):
            for op, times in phase.uncounted.items():
                console.print(Text(f"not counted: {times} × {op}: cost unknown"))


def _phases(cost: GenerationCost) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("Call", no_wrap=True)
    for heading in ("FLOPs", "Data moved", "FLOPs per byte", "Memory", "Roofline"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows: list[tuple[str, PhaseCost]] = [
        (f"prompt of {count(cost.length, 'token')}", cost.prefill),
        ("step", cost.step),
    ]
    for name, phase in rows:
        moved = quantity(phase.bytes_read + phase.bytes_written, "B", base=1024)
        table.add_row(
            name,
            quantity(phase.flops + phase.vector_flops, ""),
            moved,
            f"{phase.arithmetic_intensity:.1f}",
            quantity(phase.activation_bytes, "B", base=1024),
            "-" if phase.roofline is None else _estimate(phase),
        )
    return table


def _estimate(phase: PhaseCost) -> str:
    estimate = phase.roofline
    assert estimate is not None
    bound = "memory" if estimate.memory_seconds > estimate.compute_seconds else "arithmetic"
    return f"{seconds(estimate.seconds)}, by {bound}"
