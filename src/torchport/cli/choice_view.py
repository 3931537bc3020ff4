"""Shows what `auto` does: each engine as it is tried, then a table of all engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.output import Output
from torchport.cli.text import seconds
from torchport.records import EngineTry, Tries
from torchport.report.tries_table import TRIES_HEADER, TRIES_NUMERIC, tries_cells


@contextmanager
def showing_choice(output: Output, model: str, show: Callable[[str], None]) -> Iterator[None]:
    """Show on a terminal which engine is being tried, and a line for each one tried."""
    from torchport.compiler.engine_choice import ChoiceProgress, telling

    class OnTerminal(ChoiceProgress):
        def trying(self, engine: str, number: int, engines: int) -> None:
            show(f"Trying {engine} on {model} ({number} of {engines})")

        def timing(self, engine: str) -> None:
            show(f"Timing {engine} on {model}")

        def tried(self, row: EngineTry) -> None:
            if output.err.is_terminal:
                output.message(_line(row))

    with telling(OnTerminal()):
        yield


def _line(row: EngineTry) -> str:
    if row.seconds is None or row.ratio is None:
        return f"{row.engine}: {row.status}: {row.reason}"
    return f"{row.engine}: {seconds(row.seconds)} per call, {row.ratio:.2f}x eager torch's time"


def show_tries(tries: Tries, console: Console) -> None:
    """Print a table of the engines that were tried."""
    how = "measured here before" if tries.remembered else f"tried in {seconds(tries.seconds)}"
    head = f"auto chose {tries.chosen} by {tries.objective}; {how}"
    console.print(head, style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for title, numeric in zip(TRIES_HEADER, TRIES_NUMERIC, strict=True):
        table.add_column(title, justify="right" if numeric else "left", no_wrap=title != "Reason")
    for row in tries.rows:
        style = "bold" if row.engine == tries.chosen else ""
        table.add_row(*[Text(cell) for cell in tries_cells(row)], style=style)
    console.print(table)
