"""Structures compare equal if they are interchangeable; nodes name their classes and check what they fill."""

import enum

import numpy
import pytest
import torch

from structure.classes import Data, Frozen, Pair, Plain, Uncopyable
from torchport.errors import StructureError
from torchport.structure import Structure, flatten
from torchport.structure.nodes import same_value


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def same(left, right):
    return flatten(left).structure == flatten(right).structure


TENSOR = torch.ones(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: (t, 1, "a"),
        lambda t: {"a": [t], "b": None},
        lambda t: Plain(t, note={"k": 2}),
        lambda t: Data(t),
        lambda t: Frozen(t),
        lambda t: Pair(t, Color.RED),
        lambda t: (t, float("nan")),
        lambda t: (t, torch.float32, torch.device("cpu"), slice(1, 2), range(3)),
        lambda t: (t, numpy.array([1, 2])),
    ],
)
def test_the_same_structure_with_other_tensors_is_the_same(make):
    assert same(make(torch.ones(1)), make(torch.zeros(2)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((TENSOR, 1), (TENSOR, 2)),
        ((TENSOR, 1), (TENSOR, 1.0)),
        ((TENSOR, 1), (TENSOR, True)),
        ((TENSOR, 0.0), (TENSOR, -0.0)),
        ((TENSOR, "a"), (TENSOR, b"a")),
        ((TENSOR, None), (TENSOR,)),
        ((TENSOR,), [TENSOR]),
        ({"a": TENSOR}, {"b": TENSOR}),
        ({"a": TENSOR, "b": 1}, {"b": 1, "a": TENSOR}),
        (Plain(TENSOR, 1), Plain(TENSOR, 2)),
        (Plain(TENSOR), Data(TENSOR)),
        (Data(TENSOR), Frozen(TENSOR)),
        ((TENSOR, Color.RED), (TENSOR, Color.BLUE)),
        ((TENSOR, numpy.array([1, 2])), (TENSOR, numpy.array([1, 3]))),
        ((TENSOR, numpy.array([1, 2])), (TENSOR, numpy.array([1, 2, 3]))),
        ((TENSOR, TENSOR), (TENSOR, torch.ones(1))),
        ((TENSOR, torch.float32), (TENSOR, torch.float64)),
    ],
)
def test_another_structure_is_another(left, right):
    assert not same(left, right)


def test_who_cannot_tell_says_no():
    class Silent:
        def __eq__(self, other):
            raise RuntimeError("ask somebody else")

        __hash__ = None

    assert not same_value(Silent(), Silent())
    assert not same_value(Uncopyable(), Uncopyable())


def test_an_object_knows_the_name_of_its_class():
    assert flatten(Plain(TENSOR)).structure.root.kind == "Plain"
    assert flatten(Data(TENSOR)).structure.root.kind == "Data"


@pytest.mark.parametrize(("given", "other"), [([1], {}), ({"a": 1}, [])])
def test_a_change_of_an_object_of_another_class_is_refused(given, other):
    flat = flatten(given)
    changed = Structure(flat.structure.root, (), ((0, flat.structure.root),))
    with pytest.raises(StructureError, match=f"modifies a {type(given).__name__}, but"):
        changed.rebuild([], (), [other])
