"""Replaces a marked section of a document, between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from __future__ import annotations

from torchport.errors import ReportError


def fill_place(document: str, place: str, content: str) -> str:
    """Return a document with the content of a marked section replaced; the markers are kept.

    Args:
        document: its text.
        place: the section's name, such as `results`.
        content: the new content.

    Raises:
        ReportError: the document has no such section, or more than one.

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
            remedy=f"insert the lines {begin} and {end} once, where it should be",
        )
    return f"{head}{begin}\n{content}\n{end}{tail}"
