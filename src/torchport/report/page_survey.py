"""Converts a survey to the page's data, limited to what a person can look at."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchport.report.survey.markdown import ops_of_both
from torchport.report.survey.records import Survey

_MOST_OPS = 500  # the most ops with distributions of their own
_MOST_VALUES = 20
_MOST_MODELS = 200
_MOST_COLUMNS = 40
_LONGEST = 200


def survey_data(survey: Survey) -> dict[str, Any]:
    """Return the page's data of a survey."""
    ops = ops_of_both(survey)
    detailed = {op for op, _, _ in ops[:_MOST_OPS]}
    return {
        "models": [
            {
                "model": model.model,
                "status": model.status,
                "error": model.error,
                "forward": [model.forward_ops, model.forward_unique],
                "backward": [model.backward_ops, model.backward_unique],
                "graphs": model.graphs,
                "flops": model.flops,
                "seconds": model.seconds,
                "memory": model.peak_bytes,
            }
            for model in survey.models
        ],
        "ops": [
            {
                "op": op,
                "forward": [forward.count, forward.models] if forward else None,
                "backward": [backward.count, backward.models] if backward else None,
                "flops": sum(side.flops for side in (forward, backward) if side),
            }
            for op, forward, backward in ops
        ],
        "sizes": _sizes(survey, detailed),
        "arguments": _arguments(survey, detailed),
        "usage": _usage(survey, [op for op, _, _ in ops[:_MOST_COLUMNS]]),
    }


def _sizes(survey: Survey, detailed: set[str]) -> dict[str, dict[str, list[list[int]]]]:
    """Return for each op the number of calls by the bit length of their inputs' and outputs' bytes."""
    counts: dict[str, dict[str, Counter[int]]] = {}
    for size in survey.sizes:
        if size.op in detailed and size.bytes is not None:
            sides = counts.setdefault(size.op, {"input": Counter(), "output": Counter()})
            sides[size.side][max(size.bytes, 0).bit_length()] += size.count
    return {
        op: {side: [list(item) for item in sorted(counter.items())] for side, counter in sides.items()}
        for op, sides in counts.items()
    }


def _arguments(survey: Survey, detailed: set[str]) -> dict[str, dict[str, list[list[Any]]]]:
    """Return for each op its arguments' values and how often each occurs, the most frequent first."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for argument in survey.arguments:
        if argument.op in detailed:
            values = counts.setdefault(argument.op, {}).setdefault(argument.name, Counter())
            values[argument.value[:_LONGEST]] += argument.count
    return {
        op: {
            name: [list(item) for item in values.most_common(_MOST_VALUES)]
            + ([[f"{len(values) - _MOST_VALUES} more values", None]] if len(values) > _MOST_VALUES else [])
            for name, values in arguments.items()
        }
        for op, arguments in counts.items()
    }


def _usage(survey: Survey, ops: list[str]) -> list[list[Any]]:
    """Return how often each of the first models calls each of the most frequent ops."""
    columns = {op: place for place, op in enumerate(ops)}
    models = {model.model: place for place, model in enumerate(survey.models[:_MOST_MODELS])}
    return [
        [models[use.model], columns[use.op], use.count]
        for use in survey.usage
        if use.model in models and use.op in columns
    ]
