"""Formats numbers, and text from untrusted files, for display."""

from __future__ import annotations

from collections.abc import Mapping

from torchport.records import JSON


def printable(text: str) -> str:
    r"""Return text with unprintable characters, except newlines, written as escapes.

    Example:
        >>> printable("\x1b[2Jresnet")
        '\\x1b[2Jresnet'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def printable_json(data: JSON) -> JSON:
    """Return untrusted JSON with every string in it made printable."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, Mapping):
        return {printable(key): printable_json(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [printable_json(item) for item in data]
    return data


def percent(part: int, whole: int) -> str:
    """Return a part as a percentage of the whole; 100% if the whole is 0."""
    return f"{100 * part / whole:.1f}%" if whole else "100.0%"


def seconds(value: float) -> str:
    """Return a time in a suitable unit.

    Example:
        >>> seconds(0.0123), seconds(2.5)
        ('12.3 ms', '2.50 s')
    """
    if value < 0.001:
        return f"{1e6 * value:.0f} µs"
    return f"{1000 * value:.1f} ms" if value < 1 else f"{value:.2f} s"


def quantity(value: float, unit: str, base: int = 1000) -> str:
    """Return a large number with a unit prefix.

    Example:
        >>> quantity(3_640_000_000, "FLOPs"), quantity(1536, "B", base=1024)
        ('3.6 GFLOPs', '1.5 KiB')
    """
    infix = "i" if base == 1024 else ""
    for prefix in ("", "K", "M", "G", "T", "P"):
        if value < base or prefix == "P":
            break
        value /= base
    number = f"{value:.1f}" if prefix else f"{value:.0f}"
    return f"{number} {prefix}{infix if prefix else ''}{unit}"


def count(number: int, noun: str) -> str:
    """Return a number and its noun.

    Example:
        >>> count(1, "op"), count(2, "op")
        ('1 op', '2 ops')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
