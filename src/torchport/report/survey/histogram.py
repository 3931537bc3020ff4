"""Draws a distribution of bytes as a histogram: a bar for each power of two, labeled with its count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchport.report.survey.records import SizeCount

WIDTH, HEIGHT = 640, 320
Shade = Literal["ink", "faint", "grid", "bar"]
Anchor = Literal["start", "middle", "end"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 620, 74, 270  # the edges of the plot area
_FEWEST_BINS, _MOST_LABELS = 8, 10
_DIGIT_WIDTH = 6.2  # approximate width of a digit in the small font size
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_CAPTIONS = {"fw": "forward", "bw": "backward", "input": "inputs", "output": "outputs"}


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, given by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float
    shade: Shade


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, given by the point on its baseline where its anchor is."""

    x: float
    y: float
    text: str
    size: int
    anchor: Anchor = "start"
    shade: Shade = "ink"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of boxes with texts drawn over them."""

    boxes: tuple[Box, ...]
    texts: tuple[Text, ...]


def draw_histogram(sizes: Sequence[SizeCount]) -> Drawing:
    """Draw the distribution of one op's bytes.

    Args:
        sizes: the rows of one op, direction and side; at least one.
    """
    bins = _bins(sizes)
    first, last = _span(bins)
    pitch = (_RIGHT - _LEFT) / (last - first + 1)
    highest = max(bins.values(), default=1)
    boxes: list[Box] = []
    texts = _captions(sizes)
    for count in sorted({0, highest // 2, highest}):
        y = _height(count, highest)
        boxes.append(Box(_LEFT, y, _RIGHT - _LEFT, 1, "faint" if count == 0 else "grid"))
        texts.append(Text(_LEFT - 8, y + 4, f"{count:,}", 11, "end", "faint"))
    every = -(-(last - first + 1) // _MOST_LABELS)
    for place in range(first, last + 1):
        x = _LEFT + (place - first) * pitch
        if (place - first) % every == 0:
            texts.append(Text(x + pitch / 2, _BOTTOM + 18, _edge(place), 11, "middle", "faint"))
        if count := bins.get(place, 0):
            y = min(_height(count, highest), _BOTTOM - 1)  # a single call among thousands must remain visible
            boxes.append(Box(x + pitch * 0.08, y, pitch * 0.84, _BOTTOM - y, "bar"))
            if len(f"{count:,}") * _DIGIT_WIDTH <= pitch * 1.15:
                texts.append(Text(x + pitch / 2, y - 4, f"{count:,}", 11, "middle"))
    return Drawing(tuple(boxes), tuple(texts))


def bytes_text(value: int) -> str:
    """Return a number of bytes with a unit.

    Example:
        >>> bytes_text(1536), bytes_text(1 << 20)
        ('1.5 KiB', '1 MiB')
    """
    number, unit = float(value), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {_UNITS[unit]}" if number < 1000 else f"{number:.0f} {_UNITS[unit]}"


def _bins(sizes: Sequence[SizeCount]) -> Counter[int]:
    """Count the calls by `place`, with bytes from 2**place up to the next power of two; 0 bytes is at -1."""
    bins: Counter[int] = Counter()
    for size in sizes:
        if size.bytes is not None:
            bins[size.bytes.bit_length() - 1] += size.count
    return bins


def _span(bins: Counter[int]) -> tuple[int, int]:
    """Return the first and the last place of the axis, which has a minimum number of places."""
    first, last = min(bins, default=0), max(bins, default=0)
    missing = max(0, _FEWEST_BINS - (last - first + 1))
    first = max(min(first, 0), first - missing // 2)
    return first, max(last, first + _FEWEST_BINS - 1)


def _captions(sizes: Sequence[SizeCount]) -> list[Text]:
    head = sizes[0]
    known = [size for size in sizes if size.bytes is not None]
    unknown = sum(size.count for size in sizes if size.bytes is None)
    calls = sum(size.count for size in sizes)
    facts = [f"{calls:,} call{'' if calls == 1 else 's'}"]
    if known:
        facts.append(f"median {bytes_text(_median(known))}")
        facts.append(f"largest {bytes_text(max(size.bytes or 0 for size in known))}")
    if unknown:
        facts.append(f"{unknown:,} of unknown size")
    title = head.op if len(head.op) <= 64 else head.op[:63] + "…"
    what = f"total bytes of its {_CAPTIONS[head.side]} in a call, {_CAPTIONS[head.direction]}"
    return [
        Text(_LEFT, 26, title, 16),
        Text(_LEFT, 46, f"{what}: {', '.join(facts)}", 12, "start", "faint"),
        Text((_LEFT + _RIGHT) / 2, HEIGHT - 10, "bytes, from … up to twice as many", 11, "middle", "faint"),
    ]


def _median(known: Sequence[SizeCount]) -> int:
    """Return the lower median of sorted sizes."""
    left = (sum(size.count for size in known) + 1) // 2
    for size in known:
        left -= size.count
        if left <= 0:
            return size.bytes or 0
    return 0


def _height(count: int, highest: int) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * count / highest


def _edge(place: int) -> str:
    return "0" if place < 0 else bytes_text(1 << place)
