"""A marked section of a document is replaced, and nothing else changes."""

import pytest

from torchport.errors import ReportError
from torchport.report import fill_place

DOCUMENT = "Head\n<!-- results: begin -->\nold\n<!-- results: end -->\n<!-- others: begin -->\nTail\n"


def test_what_stands_there_is_replaced():
    filled = fill_place(DOCUMENT, "results", "new\nlines")
    assert filled == DOCUMENT.replace("old", "new\nlines")
    assert fill_place(filled, "results", "old") == DOCUMENT


@pytest.mark.parametrize(
    "document",
    [
        "",
        "<!-- results: begin -->\n",
        "<!-- results: end -->\n<!-- results: begin -->\n",
        DOCUMENT + DOCUMENT,
    ],
)
def test_no_place_or_two_are_refused(document):
    with pytest.raises(ReportError, match="no place for results"):
        fill_place(document, "results", "new")
