"""Sanitizes terminal output: control characters in names and errors are shown, never interpreted.

A model's name, an op's name or an error's text may come from an untrusted file. Control characters are shown
as visible symbols, and brackets are not parsed as rich markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from torchport.records import JSON

# C0 controls except tab and newline, delete, C1 controls (one of which starts sequences, as ESC [ does),
# bidirectional overrides and line separators, and lone surrogates, which cannot be encoded.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
_PICTURES = 0x2400  # Unicode has a symbol for each C0 control, in the same order
_DELETE = 0x7F
_PICTURE_OF_DELETE = "\u2421"
_UNKNOWN = "\ufffd"


def printable(text: str) -> str:
    """Return text with each control character replaced by a visible symbol.

    Example:
        >>> printable("model\\x1b[2J")
        'model␛[2J'
    """
    return _COMMANDS.sub(lambda found: _picture(found.group()), text)


def _picture(sign: str) -> str:
    code = ord(sign)
    if code == _DELETE:
        return _PICTURE_OF_DELETE
    return chr(_PICTURES + code) if code < 0x20 else _UNKNOWN


def json_text(data: JSON, *, indent: int | None = None) -> str:
    """Serialize JSON for a terminal, with control characters escaped; parsing it yields the same data."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)  # they occur only in strings


def guard(console: Console) -> Console:
    """Patch a console to neither interpret markup nor emit control characters from text; returns it."""
    render, render_str = console.render, console.render_str

    def rendered(renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def as_text(text: str, **settings: object) -> Text:
        settings |= {"markup": False, "emoji": False}
        return render_str(printable(text), **settings)  # type: ignore[arg-type]  # passed through

    console.render = rendered  # type: ignore[method-assign]  # everything printed goes through it
    console.render_str = as_text  # type: ignore[method-assign]
    return console
