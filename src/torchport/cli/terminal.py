"""Keeps what a file says from commanding the terminal: names and errors are shown, never obeyed.

A model's name, an op's name or an error's text may come from an untrusted file. What a terminal would act on
is shown as visible symbols; words in brackets are not markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from torchport.records import JSON

# The C0 controls but tab and newline, delete, the C1 controls (of which one begins sequences as ESC [ does),
# signs that turn the direction of text or end a line, and halves of pairs, which no encoding has.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
_PICTURES = 0x2400  # Unicode has a picture of each C0 control, in their order
_DELETE = 0x7F
_PICTURE_OF_DELETE = "\u2421"
_UNKNOWN = "\ufffd"


def printable(text: str) -> str:
    """Return a text with a picture in place of each sign that a terminal would act upon.

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
    """Return JSON as text that a terminal may show; what a reader gets of it is the data as it was."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)  # they stand in strings only


def guard(console: Console) -> Console:
    """Return the console, which from now on takes no command and no markup from the texts that it prints."""
    render, render_str = console.render, console.render_str

    def rendered(renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def as_text(text: str, **settings: object) -> Text:
        settings |= {"markup": False, "emoji": False}
        return render_str(printable(text), **settings)  # type: ignore[arg-type]  # as they came

    console.render = rendered  # type: ignore[method-assign]  # all that is printed goes through it
    console.render_str = as_text  # type: ignore[method-assign]
    return console
