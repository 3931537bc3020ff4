"""Reduces the widths in a transformers configuration's values so that they still fit each other.

All widths come down to the same few numbers: a hidden size of 128 that 4 heads of 32 divide, wherever it
stands. What depends on them by more than its name (grouped heads, state-space heads, rotary sections) is set
from the reduced values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = 128
HEADS = 4
HEAD = HIDDEN // HEADS
GROUPED_HEADS = 2

# The first rule that matches an attribute's name is the one.
WIDTHS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), limit)
    for pattern, limit in (
        (r"head_dim$|^d_kv$|head_size$|d_head$|rotary_dim$|^qk_channels_per_head$", HEAD),
        (r"heads$|^n_head$|^num_head$", HEADS),
        (r"intermediate_size$|ffn_dim$|_ff$|^n_inner$|mlp_dim$|ffn_hidden_size$|^ffn_size$", 2 * HIDDEN),
        (r"_rank$", HEAD),
        (
            r"hidden_size$|d_model$|n_embd$|embed_dim$|^dim$|emb_dim$|hidden_dim$|embedding_size$|projection_dim$"
            r"|^lru_width$|^attention_hidden_size$|^hidden_size_per_layer_input$|^out_dim$|^output_dim$",
            HIDDEN,
        ),
    )
)
GROUPED = re.compile(r"(num_)?(key_value|kv)_heads$|^num_heads_kv$")
SECTIONS = re.compile(r"mrope_section$")


def shrink_widths(values: dict[str, object]) -> None:
    """Reduce the widths among a configuration's values, in place.

    Args:
        values: a configuration as a dict, without the nested ones.
    """
    before = dict(values)
    for key, value in before.items():
        if isinstance(value, int) and not isinstance(value, bool):
            values[key] = _limit(key, value)
    _fit_grouped_heads(before, values)
    _fit_state_heads(values)
    _fit_sections(values, before, values)


def _limit(key: str, value: int) -> int:
    for pattern, limit in WIDTHS:
        if pattern.search(key):
            return min(value, limit)
    return value


def _fit_grouped_heads(before: Mapping[str, object], values: dict[str, object]) -> None:
    """Keep as many key/value heads as heads where there were, and fewer where there were fewer."""
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
    """Let the heads of a state-space layer fill its inner width, which is a multiple of the hidden size."""
    for heads, size, expand in (
        ("mamba_n_heads", "mamba_d_head", "mamba_expand"),
        ("mamba_num_heads", "mamba_head_dim", "expand"),
        ("n_mamba_heads", "mamba_headdim", "mamba_expand"),
        ("num_heads", "head_dim", "expand"),
    ):
        if heads in values and expand in values:
            inner = _number(values, "mamba_d_ssm", 0) or _number(values, expand, 2) * _number(
                values, "hidden_size", HIDDEN
            )
            if isinstance(values.get(size), int):
                values[heads] = inner // _number(values, size, HEAD)


def _fit_sections(
    values: dict[str, object], before: Mapping[str, object], after: Mapping[str, object]
) -> None:
    """Scale the parts of a head that rotate by different positions as the head was scaled."""
    for key, value in values.items():
        if isinstance(value, dict):
            _fit_sections(value, before, after)
        elif SECTIONS.search(str(key)) and isinstance(value, (list, tuple)):
            scale = _head_size(after) / _head_size(before)
            values[key] = [max(1, round(part * scale)) for part in value]


def _head_size(values: Mapping[str, object]) -> int:
    explicit = _number(values, "head_dim", 0)
    return explicit or _number(values, "hidden_size", HIDDEN) // _number(values, "num_attention_heads", HEADS)


def _number(values: Mapping[str, object], key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and value else default
