"""The parts that the sections of the HTML report share: figures on tiles, tables that can be sorted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


def tile(figure: str, caption: str, kind: str) -> str:
    """Return a figure with its caption; its kind is `good`, `bad`, `warn` or empty."""
    return f'<div class="tile"><b class="{kind}">{escape(figure)}</b><span>{escape(caption)}</span></div>'


def sortable(name: str, heads: Sequence[tuple[str, str, str]], rows: str, what: str) -> str:
    """Return a table that is sorted by a click on a head, below a field that filters its rows.

    Args:
        name: the table's id.
        heads: of each column the title, what it means, and its class as an attribute.
        rows: the rows, as HTML; each cell says in `data-value` what it is sorted by.
        what: what is filtered, in the plural.
    """
    head = "".join(
        f'<th scope="col" title="{escape(explanation)}"{kind}>'
        f'<button type="button">{escape(title)}</button></th>'
        for title, explanation, kind in heads
    )
    return (
        f'<div class="tools"><input type="search" data-filters="{name}" placeholder="Filter {what}" '
        f'aria-label="Filter {what}"></div>\n'
        f'<div class="card"><table id="{name}" class="sortable"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def breakable(name: str) -> str:
    """Let a long name wrap where it has a separator, rather than within a word."""
    return re.sub(r"([:/_.-]+)", r"\1<wbr>", name)
