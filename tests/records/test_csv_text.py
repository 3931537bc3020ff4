"""CSV whose cells a spreadsheet never evaluates as formulas."""

import csv
import io

import pytest

from torchport.records import csv_text, read_csv_text

FORMULAS = [
    "=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1+1", "＝1+1",
    "-model", "+", "-",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_a_text_and_reads_back(text):
    written = csv_text([[text, 1]])
    [[cell, _]] = csv.reader(io.StringIO(written, newline=""))
    assert cell == "'" + text
    assert read_csv_text(written) == [[text, "1"]]


@pytest.mark.parametrize("value", [-1, -1.5, 2e-30, "-1", "+2", "-1.5e-7", "-.5", 0, True])
def test_numbers_stay_numbers(value):
    written = csv_text([[value]])
    assert written == f"{value}\n"


@pytest.mark.parametrize(
    "text",
    ["plain", "it's", "'quoted'", "''", "'=1", 'a "b"', "a,b", "a;=1", "x\r=1+1", "x\n=1+1", " x ", "π"],
)
def test_other_texts_read_back(text):
    assert read_csv_text(csv_text([[text, text], ["", None]])) == [[text, text], ["", ""]]


def test_a_return_within_a_text_begins_no_row():
    [row] = csv.reader(io.StringIO(csv_text([["model\r=cmd()", 1]]), newline=""))
    assert row == ["model\r=cmd()", "1"]
