"""Chooses how to store each weight within a size limit: in four bits and which groups, or in eight bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A way to store a layer's weight.

    Args:
        bits: bits per value.
        group: how many inputs share a scale; None: scales are per output.
        bytes: the size, including scales and zero points.
        error: the error that it causes in the model's results.
    """

    bits: int
    group: int | None
    bytes: int
    error: float


def choose_forms(forms: Mapping[str, Sequence[Form]], limit: float) -> dict[str, Form]:
    """Return the form of each layer: starting from the smallest, greedily save the most error per byte.

    Args:
        forms: the forms that each layer can have, the smallest first.
        limit: the total size limit in bytes.

    Example:
        >>> four, eight = Form(4, 64, 5, 8.0), Form(8, None, 10, 0.0)
        >>> chosen = choose_forms({"a": [four, eight], "b": [Form(4, 64, 5, 1.0), eight]}, 15)
        >>> [form.bits for form in chosen.values()]
        [8, 4]
    """
    chosen = {name: each[0] for name, each in forms.items()}
    size = sum(form.bytes for form in chosen.values())
    while True:
        steps = [
            ((chosen[name].error - form.error) / (form.bytes - chosen[name].bytes), name, form)
            for name, each in forms.items()
            for form in each
            if chosen[name].bytes < form.bytes <= limit - size + chosen[name].bytes
            and form.error < chosen[name].error
        ]
        if not steps:
            return chosen
        _, name, form = max(steps, key=lambda step: step[0])
        size += form.bytes - chosen[name].bytes
        chosen[name] = form
