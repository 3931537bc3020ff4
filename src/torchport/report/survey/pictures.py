"""Writes drawings as SVG, and as PNG with Pillow."""

from __future__ import annotations

import io
from functools import cache
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from torchport.errors import ReportError
from torchport.report.survey.histogram import HEIGHT, WIDTH, Anchor, Drawing, Shade

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

_SCALE = 2  # pixels of a PNG per unit of a drawing
_COLOURS: dict[Shade, str] = {"ink": "#1b2330", "faint": "#48566b", "grid": "#dfe6f5", "bar": "#3f6fdc"}
# An image with one byte per pixel is written three times as fast. Its palette runs from ink through the bars'
# blue to white, so that the antialiased edges of letters get intermediate colours.
_GREYS: dict[Shade, int] = {"ink": 0, "faint": 48, "bar": 128, "grid": 232}
_RAMP = ((0, (27, 35, 48)), (48, (72, 86, 107)), (128, (63, 111, 220)), (255, (255, 255, 255)))
_PIL_ANCHORS: dict[Anchor, str] = {"start": "ls", "middle": "ms", "end": "rs"}


def render_svg(drawing: Drawing) -> str:
    """Return a drawing as self-contained SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    parts += [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{_COLOURS[box.shade]}"/>'
        for box in drawing.boxes
    ]
    parts += [
        f'<text x="{text.x:.1f}" y="{text.y:.1f}" font-size="{text.size}" text-anchor="{text.anchor}" '
        f'fill="{_COLOURS[text.shade]}">{escape(_printable(text.text))}</text>'
        for text in drawing.texts
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def render_png(drawing: Drawing) -> bytes:
    """Return a drawing as PNG, with two pixels per unit.

    Raises:
        ReportError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ReportError(
            "plots are drawn with Pillow, which is not installed",
            remedy="pip install 'torchport[survey]', or skip plots with --no-plots",
        ) from error
    image = Image.new("L", (WIDTH * _SCALE, HEIGHT * _SCALE), 255)
    draw = ImageDraw.Draw(image)
    for box in drawing.boxes:
        right, lower = box.x + box.width, box.y + box.height
        corners = [round(_SCALE * edge) for edge in (box.x, box.y, right, lower)]
        draw.rectangle((corners[0], corners[1], corners[2] - 1, corners[3] - 1), fill=_GREYS[box.shade])
    for text in drawing.texts:
        draw.text(
            (_SCALE * text.x, _SCALE * text.y),
            _printable(text.text),
            fill=_GREYS[text.shade],
            font=_font(text.size * _SCALE),
            anchor=_PIL_ANCHORS[text.anchor],
        )
    image.putpalette(_palette())
    content = io.BytesIO()
    image.save(content, format="png", compress_level=1)
    return content.getvalue()


@cache
def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)


@cache
def _palette() -> bytes:
    colours = bytearray()
    for (low, dark), (high, bright) in pairwise(_RAMP):
        for grey in range(low, high):
            part = (grey - low) / (high - low)
            colours += bytes(round(a + part * (b - a)) for a, b in zip(dark, bright, strict=True))
    return bytes(colours) + bytes(_RAMP[-1][1])


def _printable(text: str) -> str:
    """Replace control characters, which XML does not allow and a picture cannot show."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)
