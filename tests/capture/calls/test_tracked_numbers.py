"""Tracked numbers, which record where they come from, behave like plain numbers."""

import copy
import math
import operator
import pickle

import pytest

from torchport.capture.calls.tracked_numbers import Origin, TrackedSize, plain, track


class Listener:
    active = True

    def __init__(self):
        self.asked = []

    def here(self):
        return None

    def note_comparison(self, target, args, answer):
        self.asked.append((target, [plain(arg) for arg in args], answer))


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def seven(listener):
    return track(7, Origin("size", ("x", 0)), listener)


def test_they_compute_as_numbers_do_and_remember_how(seven):
    for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow"):
        function = getattr(operator, name)
        for made, expected in ((function(seven, 3), function(7, 3)), (function(3, seven), function(3, 7))):
            assert plain(made) == expected
            assert made.origin.target is function
    assert isinstance(seven, int)
    assert plain(-seven) == -7
    assert math.ceil(seven / 2).origin.target is math.ceil
    assert [plain(part) for part in divmod(seven, 2)] == [3, 1]


def test_what_is_asked_of_them_is_noted(seven, listener):
    assert seven > 3
    assert (seven == 8) is False
    assert bool(seven)
    assert listener.asked == [
        (operator.gt, [7, 3], True),
        (operator.eq, [7, 8], False),
        (operator.ne, [7, 0], True),
    ]


def test_they_are_plain_numbers_when_the_run_is_over(seven, listener):
    listener.active = False
    assert type(seven + 1) is int
    assert seven > 3
    assert listener.asked == []
    assert type(pickle.loads(pickle.dumps(seven))) is int
    assert copy.deepcopy(seven) == 7


def test_lists_and_tensors_take_them(seven):
    assert [0] * seven == [0] * 7
    assert list(range(10))[seven] == 7
    assert {7: "found"}[seven] == "found"


def test_a_shape_counts_its_elements_and_stays_one(seven):
    shape = TrackedSize((seven, 3))
    assert plain(shape.numel()) == 21
    assert isinstance(shape[1:], TrackedSize)
    assert (1, *shape) == (1, 7, 3)
    extended = shape + (2,)  # noqa: RUF005  # the operator itself is meant
    assert isinstance(extended, TrackedSize)
    assert shape == (7, 3)
