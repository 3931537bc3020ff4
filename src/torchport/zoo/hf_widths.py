"""Reduces the widths in a transformers configuration's values consistently.

All widths are reduced to the same few numbers, such as a hidden size of 4 heads wherever one occurs. Values
that depend on several others (grouped heads, state-space heads, rotary sections) are computed from the
reduced values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HEADS = 4
GROUPED_HEADS = 2

# Patterns of attribute names, with the reduced width as a number of heads. The first match applies.
WIDTHS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), heads)
    for pattern, heads in (
        (r"head_dim$|^d_kv$|head_size$|d_head$|rotary_dim$|_rank$", 1),
        (r"intermediate_size$|ffn_dim$|_ff$|^n_inner$|mlp_dim$|ffn_hidden_size$|^ffn_size$", 2 * HEADS),
        (
            r"hidden_size$|d_model$|n_embd$|embed_dim$|^dim$|emb_dim$|hidden_dim$|embedding_size$"
            r"|projection_dim$|^lru_width$|^hidden_size_per_layer_input$|^out_dim$|^output_dim$",
            HEADS,
        ),
    )
)
HEAD_COUNT = re.compile(r"heads$|^n_head$|^num_head$")
GROUPED = re.compile(r"(num_)?(key_value|kv)_heads$|^num_heads_kv$")
SECTIONS = re.compile(r"mrope_section$")


def shrink_widths(values: dict[str, object], head: int) -> None:
    """Reduce the widths among a configuration's values, in place.

    Args:
        values: a configuration as a dict; configurations nested in it are not changed.
        head: the reduced width of an attention head.
    """
    before = dict(values)
    for key, value in before.items():
        if isinstance(value, int) and not isinstance(value, bool):
            values[key] = _limit(key, value, head)
    _fit_grouped_heads(before, values)
    _fit_state_heads(values)
    _fit_sections(values, before, values)


def _limit(key: str, value: int, head: int) -> int:
    if HEAD_COUNT.search(key):
        return min(value, HEADS)
    for pattern, heads in WIDTHS:
        if pattern.search(key):
            return min(value, heads * head)
    return value


def _fit_grouped_heads(before: Mapping[str, object], values: dict[str, object]) -> None:
    """Keep grouped heads grouped: where there were fewer key/value heads than heads, reduce them further."""
    for key in before:
        found = GROUPED.search(key)
        if found is None or not isinstance(before[key], int):
            continue
        prefix = key[: found.start()]
        names = (f"{prefix}num_attention_heads", f"{prefix}attention_heads", f"{prefix}num_heads")
        heads = next((name for name in names if name in before), "num_attention_heads")
        if before.get(heads) != before[key]:
            values[key] = min(_number(before, key, GROUPED_HEADS), GROUPED_HEADS)


def _fit_state_heads(values: dict[str, object]) -> None:
    """Set the number of a state-space layer's heads so that they fill its inner width."""
    for heads, size, expand in (
        ("mamba_n_heads", "mamba_d_head", "mamba_expand"),
        ("mamba_num_heads", "mamba_head_dim", "expand"),
        ("n_mamba_heads", "mamba_headdim", "mamba_expand"),
        ("num_heads", "head_dim", "expand"),
    ):
        width = _number(values, size, 0)
        if heads in values and expand in values and width:
            inner = _number(values, expand, 1) * _number(values, "hidden_size", 1)
            values[heads] = _number(values, "mamba_d_ssm", inner) // width


def _fit_sections(
    values: dict[str, object], before: Mapping[str, object], after: Mapping[str, object]
) -> None:
    """Scale the sections of a multi-dimensional rotary embedding in proportion to the head."""
    for key, value in values.items():
        if isinstance(value, dict):
            _fit_sections(value, before, after)
        elif SECTIONS.search(str(key)) and isinstance(value, (list, tuple)):
            scale = _head_size(after) / _head_size(before)
            values[key] = [max(1, round(part * scale)) for part in value]


def _head_size(values: Mapping[str, object]) -> int:
    hidden = _number(values, "hidden_size", 1)
    return _number(values, "head_dim", hidden // _number(values, "num_attention_heads", 1))


def _number(values: Mapping[str, object], key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and value else default
