"""Guards on sizes: inputs that satisfy them pass; others are refused, naming the guard."""

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
def test_a_guard_that_holds_passes_and_its_negation_is_refused(guard, text):
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
def test_a_malformed_guard_is_refused(guard):
    with pytest.raises(RuntimeRefusal, match="is not a valid guard"):
        check_guards([guard], SHAPES, "net")


def test_guards_that_are_not_a_list_refuse_everything():
    with pytest.raises(RuntimeRefusal):
        check_guards(None, SHAPES, "net")


def test_a_guard_that_divides_by_zero_fails():
    with pytest.raises(RuntimeRefusal):
        check_guards([["==", ["%", 4, ["-", ["size", 1, 0], 8]], 0]], SHAPES, "net")
