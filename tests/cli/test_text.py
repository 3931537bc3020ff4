"""Numbers and text formatted for display."""

import pytest

from torchport.cli.text import count, percent, printable, printable_json, quantity, seconds


@pytest.mark.parametrize(
    ("value", "text"), [(0.0000123, "12 µs"), (0.0123, "12.3 ms"), (2.5, "2.50 s"), (0, "0 µs")]
)
def test_seconds(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [(0, 1000, "0 B"), (999, 1000, "999 B"), (3_640_000_000, 1000, "3.6 GB"), (1536, 1024, "1.5 KiB"),
     (5e15, 1000, "5.0 PB"), (5e18, 1000, "5000.0 PB")],
)  # fmt: skip
def test_quantity(value, base, text):
    assert quantity(value, "B", base) == text


def test_percent_and_count():
    assert percent(1, 3) == "33.3%"
    assert percent(0, 0) == "100.0%"
    assert (count(0, "op"), count(1, "op"), count(2, "op")) == ("0 ops", "1 op", "2 ops")


def test_text_from_a_file_is_made_printable():
    assert printable("Größe [b]\n") == "Größe [b]\n"
    assert printable("\x1b[2J\x9b\u202e\udc80") == r"\x1b[2J\x9b\u202e\udc80"
    assert printable_json({"\x07": ["\r", 1, None, {"a": ("\x00",)}]}) == {
        r"\x07": [r"\r", 1, None, {"a": [r"\x00"]}]
    }
