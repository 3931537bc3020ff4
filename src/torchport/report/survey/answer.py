"""Renders the result of a query for a terminal."""

from __future__ import annotations

import json

from torchport.records import JSON
from torchport.report.markdown_table import align, escape
from torchport.report.survey.query import QueryResult


def render_answer(answer: QueryResult) -> str:
    """Return the rows of a query's result as a Markdown table, with numeric columns right-aligned.

    Args:
        answer: the result that `query_survey` returned.
    """
    right = [
        any(value is not None for value in column) and all(_is_number(value) for value in column)
        for column in (zip(*answer.rows, strict=True) if answer.rows else [()] * len(answer.columns))
    ]
    rows = [[escape(_text(value)) for value in row] for row in answer.rows]
    return "\n".join(align([escape(name) for name in answer.columns], rows, right))


def _is_number(value: JSON) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _text(value: JSON) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
