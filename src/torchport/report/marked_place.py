"""Fills a marked place of a document: what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from __future__ import annotations

from torchport.errors import ReportError


def fill_place(document: str, place: str, content: str) -> str:
    """Return a document with other content at a marked place; the marks stay.

    Args:
        document: its text.
        place: the place's name, such as `results`.
        content: what is to stand there.

    Raises:
        ReportError: the document has no such place, or more than one.

    Example:
        >>> fill_place("<!-- results: begin -->\\nold\\n<!-- results: end -->", "results", "new")
        '<!-- results: begin -->\\nnew\\n<!-- results: end -->'
    """
    begin, end = f"<!-- {place}: begin -->", f"<!-- {place}: end -->"
    head, found, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed or begin in rest:
        raise ReportError(
            f"the document has no place for {place}, or more than one",
            remedy=f"put the lines {begin} and {end} where it is to be, once",
        )
    return f"{head}{begin}\n{content}\n{end}{tail}"
