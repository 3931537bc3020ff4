"""Reads the parts of a Markdown document that the tests look at."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>file|excerpt|not run): (?P<value>.+?) -->\n+)?"
    r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        kind: what is written after the fence, such as `python`.
        text: its lines.
        line: the document's line on which the text begins.
        file: what the comment `<!-- file: NAME -->` before it says: the block is this file.
        excerpt: of `<!-- excerpt: NAME -->`: its lines are in this file.
        not_run: of `<!-- not run: REASON -->`: why no test runs it.
    """

    kind: str
    text: str
    line: int
    file: str = ""
    excerpt: str = ""
    not_run: str = ""


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document, in order."""
    document = path.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(document):
        marker = {match["marker"].replace(" ", "_"): match["value"]} if match["marker"] else {}
        line = document.count("\n", 0, match.start("text")) + 1
        yield Block(match["kind"], match["text"], line, **marker)


def sections(path: Path, level: int = 2) -> dict[str, str]:
    """Return the text below each heading of a level, by the heading, in order."""
    parts = re.split(rf"^{'#' * level} (.+)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {heading.strip(): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def links(path: Path) -> list[str]:
    """Return the local files that a document links to."""
    return _LINK.findall(path.read_text(encoding="utf-8"))
