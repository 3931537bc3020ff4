"""Guards on sizes: what holds passes, what does not is refused by name."""

import pytest

from torchport.errors import RuntimeRefusal
from torchport.runtime.shape_guards import check_guards, render

SHAPES = [(3, 4), (8,)]


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (["==", ["size", 0, 1], 4], "size 1 of tensor 0 == 4"),
        (["<=", ["*", ["size", 0, 0], 2], ["size", 1, 0]], "(size 0 of tensor 0 * 2) <= size 0 of tensor 1"),
        (["!=", ["%", ["size", 1, 0], 3], 0], "(size 0 of tensor 1 % 3) != 0"),
        (["and", [">", ["size", 0, 0], 2], ["not", ["<", 5, 3]]], None),
        (["==", ["max", 1, ["//", ["size", 0, 1], 2]], 2], None),
        (["or", [">=", 1, 2], ["==", ["-", 4, ["min", 1, 2]], ["+", 1, 2]]], None),
    ],
)
def test_what_holds_passes_and_its_contrary_is_refused(guard, text):
    check_guards([guard], SHAPES, "net")
    with pytest.raises(RuntimeRefusal, match=r"net: the inputs have the shapes \[\[3, 4\], \[8\]\]"):
        check_guards([["not", guard]], SHAPES, "net")
    if text is not None:
        assert render(guard) == text


@pytest.mark.parametrize(
    "guard",
    [
        "1",
        ["exec", "print(1)"],
        [],
        {"size": 1},
        ["==", ["size", 0, 0], None],
        ["size", "0", 0],
        ["size", 9, 0],
        ["size"],
        ["max"],
        ["not"],
        [["=="], 1, 1],
    ],
)
def test_what_is_no_guard_is_refused(guard):
    with pytest.raises(RuntimeRefusal, match="is not a valid guard"):
        check_guards([guard], SHAPES, "net")


def test_without_a_list_nothing_passes():
    with pytest.raises(RuntimeRefusal):
        check_guards(None, SHAPES, "net")


def test_a_division_by_zero_does_not_hold():
    with pytest.raises(RuntimeRefusal):
        check_guards([["==", ["%", 4, ["-", ["size", 1, 0], 8]], 0]], SHAPES, "net")
