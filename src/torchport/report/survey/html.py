"""Renders a survey as a section of the HTML report: its ops by count, its models, what failed and why."""

from __future__ import annotations

from html import escape

from torchport.report.html_table import breakable, sortable, tile
from torchport.report.survey.markdown import ops_of_both, share
from torchport.report.survey.records import DIRECTIONS, OpCount, Survey, SurveyModel

_NUMBER = ' class="number"'
_OP_HEADS = (
    ("Op", "as torch spells it", ""),
    ("Forward", "how often it appears in forward graphs", _NUMBER),
    ("In Models", "in how many models' forward graphs", _NUMBER),
    ("Backward", "how often it appears in backward graphs", _NUMBER),
    ("In Models", "in how many models' backward graphs", _NUMBER),
    ("FLOPs", "its part of all FLOPs that are known", _NUMBER),
)
_MODEL_HEADS = (
    ("Model", "as it was given", ' class="model"'),
    ("Status", "whether its ops were recorded", ' class="status"'),
    ("Forward Ops (Unique)", "in its forward graphs", _NUMBER),
    ("Backward Ops (Unique)", "in its backward graphs", _NUMBER),
    ("Graphs", "of both directions; breaks make several", _NUMBER),
    ("GFLOPs", "of its ops whose FLOPs are known", _NUMBER),
    ("Seconds", "how long its survey took", _NUMBER),
    ("Memory (MiB)", "the most that its process held", _NUMBER),
)


def render_survey_html(survey: Survey) -> str:
    """Return the section of a survey.

    Args:
        survey: what `read_survey` returned.
    """
    sections = [
        "<h2>Survey: what ops the models use</h2>",
        _tiles(survey),
        sortable("survey-ops", _OP_HEADS, _op_rows(survey), "ops"),
        "<h2>Survey: its models</h2>",
        sortable("survey-models", _MODEL_HEADS, _model_rows(survey), "models"),
        _failures(survey),
    ]
    return "\n".join(section for section in sections if section)


def _tiles(survey: Survey) -> str:
    ok = len(survey.models) - len(survey.failed)
    tiles = [tile(f"{ok:,} / {len(survey.models):,}", "models ok", "good" if ok else "bad")]
    if survey.failed:
        tiles.append(tile(f"{len(survey.failed):,}", "failed", "bad"))
    for direction, word in zip(DIRECTIONS, ("forward", "backward"), strict=True):
        if ops := survey.ops_of(direction):
            tiles.append(tile(f"{sum(op.count for op in ops):,}", f"ops {word}", ""))
            tiles.append(tile(f"{len(ops):,}", f"different ops {word}", ""))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _op_rows(survey: Survey) -> str:
    whole = sum(op.flops for op in survey.ops)
    rows = []
    for op, forward, backward in ops_of_both(survey):
        flops = (forward.flops if forward else 0) + (backward.flops if backward else 0)
        cells = f'<td data-value="{escape(op)}"><code>{breakable(escape(op))}</code></td>'
        cells += _counts(forward) + _counts(backward) + _number(flops, share(flops, whole))
        rows.append(f"<tr>{cells}</tr>")
    return "\n".join(rows)


def _counts(op: OpCount | None) -> str:
    return _number(op.count) + _number(op.models) if op else _number(None) + _number(None)


def _model_rows(survey: Survey) -> str:
    return "\n".join(f"<tr>{_model_cells(model)}</tr>" for model in survey.models)


def _model_cells(model: SurveyModel) -> str:
    mark = "✅" if model.status == "ok" else "❌"
    cells = [
        f'<td class="model" data-value="{escape(model.model)}">{breakable(escape(model.model))}</td>',
        f'<td class="status" data-value="{model.status}"><span role="img" aria-label="{model.status}" '
        f'title="{escape(model.error or model.status)}">{mark}</span></td>',
        _number(model.forward_ops, _with_unique(model.forward_ops, model.forward_unique)),
        _number(model.backward_ops, _with_unique(model.backward_ops, model.backward_unique)),
        _number(model.graphs),
        _number(model.flops, f"{model.flops / 1e9:,.2f}"),
        _number(model.seconds, "-" if model.seconds is None else f"{model.seconds:.1f}"),
        _number(model.peak_bytes, "-" if model.peak_bytes is None else f"{model.peak_bytes / 2**20:,.0f}"),
    ]
    return "".join(cells)


def _with_unique(ops: int | None, unique: int | None) -> str:
    if ops is None:
        return "-"
    return f"{ops:,}" if unique is None else f"{ops:,} ({unique:,})"


def _number(value: float | None, text: str | None = None) -> str:
    shown = text if text is not None else "-" if value is None else f"{value:,}"
    return f'<td class="number" data-value="{"" if value is None else value}">{shown}</td>'


def _failures(survey: Survey) -> str:
    if not survey.failed:
        return ""
    lines = "".join(
        f'<li>❌ <b>{escape(model.model)}</b> <span class="tag">{model.status}</span> '
        f"{escape(model.error)}</li>"
        for model in survey.failed
    )
    return f'<h2>Survey: what failed, and why</h2>\n<ul class="card complaints">{lines}</ul>'
