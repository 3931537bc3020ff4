"""Reads the parts of a Markdown document that the tests look at."""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n+)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        kind: what stands behind the fence, such as `python`.
        text: its lines.
        file: the file that a comment before it says it is; empty if there is none.
    """

    kind: str
    text: str
    file: str


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a document, in order."""
    found = _BLOCK.finditer(path.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["text"], match["file"] or "") for match in found]


def sections(path: Path, level: int = 2) -> dict[str, str]:
    """Return the text below each heading of a level, by the heading, in order."""
    parts = re.split(rf"^{'#' * level} (.+)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {heading.strip(): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def links(path: Path) -> list[str]:
    """Return the local files that a document links to."""
    return _LINK.findall(path.read_text(encoding="utf-8"))
