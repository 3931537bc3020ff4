"""Results of any structure."""

import collections
import dataclasses
import math

import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast

from torchport.errors import VerificationError
from torchport.records import Comparison
from torchport.verification import Tolerance, assert_close, compare

ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    steps: int


def paths(comparison: Comparison) -> list[str]:
    return [row.path for row in comparison.outputs]


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda t: t, "output"),
        (lambda t: (t,), "[0]"),
        (lambda t: [{"a": t}], "[0].a"),
        (lambda t: Pair(t, 3), "left"),
        (lambda t: Result(t, 3), "logits"),
        (lambda t: {7: t}, "[7]"),
        (lambda t: BaseModelOutputWithPast(last_hidden_state=t), "last_hidden_state"),
    ],
)
def test_each_structure_names_its_tensor_once(make, path):
    same = compare(make(ONE.clone()), make(ONE))
    assert same.ok
    assert paths(same) == [path]
    other = compare(make(TWO), make(ONE))
    assert not other.ok
    assert (other.outputs[0].path, other.max_absolute) == (path, 1.0)


def test_the_comparison_is_as_good_as_its_worst_output():
    expected = {"good": ONE, "bad": torch.tensor([1.0, 2.0, 3.0])}
    comparison = compare({"good": ONE, "bad": torch.tensor([3.0, 2.0, 1.0])}, expected)
    assert not comparison.ok
    assert comparison.pcc == pytest.approx(-1.0)
    assert comparison.max_absolute == 2.0
    assert [row.ok for row in comparison.outputs] == [True, False]


def test_caches_are_taken_apart():
    def cache(value):
        made = DynamicCache()
        made.update(torch.full((1, 2, 3, 4), value), torch.full((1, 2, 3, 4), value + 1), 0)
        return made

    same = compare(cache(1.0), cache(1.0))
    assert same.ok
    assert [path.rsplit(".", 1)[-1] for path in paths(same)] == ["keys", "values"]
    assert compare(cache(1.0), cache(2.0)).max_absolute == 1.0


@pytest.mark.parametrize(
    ("actual", "expected", "path", "detail"),
    [
        ((ONE,), [ONE], "output", "it is a tuple, expected a list"),
        ({"a": ONE}, collections.OrderedDict(a=ONE), "output", "it is a dict, expected an OrderedDict"),
        ((ONE,), (ONE, TWO), "[1]", "it is missing"),
        ((ONE, TWO), (ONE,), "[1]", "it was not expected"),
        ({"a": ONE}, {"a": ONE, "b": TWO}, "b", "it is missing"),
        ({"a": ONE, "b": TWO}, {"a": ONE}, "b", "it was not expected"),
        (None, ONE, "output", "it is None, expected a tensor"),
        (ONE, 1.0, "output", "it is a tensor, expected a float"),
        ((ONE, 1), (ONE, 1.0), "[1]", "it is an int, expected a float"),
        (Result(ONE, 3), Result(ONE, 4), "steps", "it is 3, expected 4"),
        (("a",), ("b",), "[0]", "it is 'a', expected 'b'"),
        ((torch.float32,), (torch.float64,), "[0]", "it is torch.float32, expected torch.float64"),
    ],
)
def test_a_mismatch_of_the_structure_is_said(actual, expected, path, detail):
    comparison = compare(actual, expected)
    wrong = [row for row in comparison.outputs if not row.ok]
    assert [(row.path, row.detail) for row in wrong] == [(path, detail)]
    assert (comparison.ok, comparison.pcc, comparison.max_absolute) == (False, 0.0, math.inf)


def test_floats_have_a_tolerance_and_other_scalars_have_none():
    assert compare((1.0, 3, True), (1.0005, 3, True)).ok
    assert not compare(1.0, 1.1).ok
    assert compare(1.0, 1.1, tolerance=Tolerance(0.2, 0.0)).ok
    assert not compare((3,), (4,), tolerance=Tolerance(1.0, 1.0)).ok
    assert compare(math.nan, math.nan).ok


def test_the_order_of_keys_does_not_matter():
    assert compare({"a": ONE, "b": TWO}, {"b": TWO, "a": ONE}).ok


def test_a_shared_tensor_equals_two_equal_ones():
    assert compare((ONE, ONE), (ONE.clone(), ONE.clone())).ok
    assert compare((ONE.clone(), ONE.clone()), (ONE, ONE)).ok
    comparison = compare((ONE, ONE), (ONE, TWO))
    assert [(row.path, row.ok) for row in comparison.outputs] == [("[0]", True), ("[1]", False)]
    comparison = compare((ONE, TWO), (ONE, ONE))
    assert [(row.path, row.ok) for row in comparison.outputs] == [("[0]", True), ("[1]", False)]


def test_a_shared_list_equals_two_equal_ones():
    shared = [ONE]
    assert compare((shared, shared), ([ONE], [ONE])).ok
    assert not compare((shared, shared), ([ONE], [TWO])).ok


def test_a_structure_that_holds_itself_ends():
    def loop(tensor):
        made = [tensor]
        made.append(made)
        return made

    assert compare(loop(ONE), loop(ONE.clone())).ok
    assert not compare(loop(TWO), loop(ONE)).ok


def test_objects_that_mean_nothing_outside_their_run_are_compared_by_type():
    assert compare((ONE, torch.nn.ReLU()), (ONE, torch.nn.ReLU())).ok
    assert not compare((ONE, torch.nn.ReLU()), (ONE, torch.nn.GELU())).ok


def test_nothing_equals_nothing():
    comparison = compare(None, None)
    assert (comparison.ok, comparison.pcc, comparison.outputs) == (True, 1.0, ())


def test_a_comparison_survives_json():
    comparison = compare((ONE,), (ONE, TWO))
    assert Comparison.from_json(comparison.to_json()) == comparison


def test_assert_close_returns_the_comparison():
    assert assert_close({"a": ONE}, {"a": ONE}).outputs[0].path == "a"


def test_assert_close_names_the_output_and_its_error():
    with pytest.raises(VerificationError) as caught:
        assert_close({"a": ONE, "b": (TWO,), "c": TWO.clone()}, {"a": ONE, "b": (ONE,), "c": ONE})
    assert str(caught.value) == (
        "b[0]: 1 of 2 elements differ (allowed: rtol 0.001, atol 0.001); at [1] it is 3, expected 2; "
        "max absolute error 1, PCC 1.000000 (2 outputs differ in all)"
    )
