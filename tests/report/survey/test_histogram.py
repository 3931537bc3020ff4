"""The plots: a bar for each power of two, as high as its count, as read from the SVG and the PNG."""

import io
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from torchport.report.survey.histogram import draw_histogram
from torchport.report.survey.pictures import render_png, render_svg
from torchport.report.survey.records import SizeCount

SVG = "{http://www.w3.org/2000/svg}"


def drawing(*sizes, op="aten.relu.default"):
    return draw_histogram([SizeCount("fw", op, "input", size, count) for size, count in sizes])


def bars(drawn):
    return [box for box in drawn.boxes if box.shade == "bar"]


def words(drawn):
    return [text.text for text in drawn.texts]


def test_sizes_of_a_power_of_two_share_a_bar():
    # 1024 and 2047 are in the bin from 1 KiB up to 2 KiB; 2048 is not.
    drawn = drawing((1024, 3), (2047, 1), (2048, 8))
    low, high = bars(drawn)
    assert high.height == pytest.approx(2 * low.height)
    assert {"4", "8"} <= set(words(drawn))
    assert "1 KiB" in words(drawn)
    assert "2 KiB" in words(drawn)


def test_bars_keep_their_distance_on_the_axis():
    first, second, third = bars(drawing((1, 1), (2, 1), (16, 1)))
    assert third.x - second.x == pytest.approx(3 * (second.x - first.x))


def test_nothing_has_a_bar_of_its_own():
    drawn = drawing((0, 5), (1, 5))
    assert len(bars(drawn)) == 2
    assert "0" in words(drawn)


def test_one_call_among_thousands_is_to_be_seen():
    assert min(bar.height for bar in bars(drawing((1, 1), (1 << 20, 1_000_000)))) >= 1


def test_the_caption_has_the_calls_the_median_and_the_largest():
    drawn = drawing((8, 1), (1024, 2), (3 << 20, 1), (None, 2))
    assert "aten.relu.default" in words(drawn)
    facts = "6 calls, median 1 KiB, largest 3 MiB, 2 of unknown size"
    assert f"total bytes of its inputs in a call, forward: {facts}" in words(drawn)


def test_sizes_that_are_all_unknown_have_no_bar():
    drawn = drawing((None, 4))
    assert bars(drawn) == []
    assert any("4 of unknown size" in text for text in words(drawn))


def test_the_svg_is_whole_and_has_every_bar_and_word():
    drawn = drawing((8, 1), (1 << 40, 7), op="my<op> & \x00more")
    root = ElementTree.fromstring(render_svg(drawn))
    assert len(root.findall(f"{SVG}rect")) == 1 + len(drawn.boxes)
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert "my<op> & �more" in texts
    assert len(texts) == len(drawn.texts)


def test_the_png_shows_the_bars_where_the_drawing_has_them():
    drawn = drawing((8, 1), (64, 4))
    image = Image.open(io.BytesIO(render_png(drawn))).convert("RGB")
    assert image.size == (1280, 640)
    for bar in bars(drawn):
        middle = (round(2 * (bar.x + bar.width / 2)), round(2 * (bar.y + bar.height / 2)))
        red, _, blue = image.getpixel(middle)
        assert blue > red + 100
    assert image.getpixel((1278, 638)) == (255, 255, 255)
