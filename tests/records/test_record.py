"""Records to JSON and back, and JSON that does not match the schema."""

import json
import math
from dataclasses import FrozenInstanceError, dataclass, field
from typing import ClassVar, Literal

import pytest

from torchport.errors import RecordError
from torchport.records import Record


@dataclass(frozen=True, slots=True)
class Point(Record):
    x: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Shape(Record):
    schema: ClassVar[str] = "test.shape/1"

    kind: Literal["open", "closed"]
    points: tuple[Point, ...]
    corner: tuple[int, str] = (0, "")
    center: Point | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    anything: object = None
    count: int = 0
    big: bool = False


WHOLE = Shape(
    "closed", (Point(1.5, "é"), Point(-2.0)), (3, "z"), Point(0.0), {"a": 1}, [1, {"b": None}], 7, True
)
LEAST = {"schema": "test.shape/1", "kind": "open", "points": []}


def test_a_record_survives_json():
    assert Shape.from_json(json.loads(json.dumps(WHOLE.to_json()))) == WHOLE


def test_the_schema_comes_first():
    assert next(iter(WHOLE.to_json().items())) == ("schema", "test.shape/1")
    assert "schema" not in Point(1.0).to_json()


def test_a_record_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        WHOLE.count = 8


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN")]
)
def test_numbers_that_strict_json_lacks_survive_as_names(value, text):
    data = Point(value).to_json()
    assert data["x"] == text
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    again = Point.from_json(data).x
    assert again == value or (math.isnan(again) and math.isnan(value))


def test_fields_with_defaults_may_be_missing_and_unknown_ones_are_passed_over():
    assert Shape.from_json(LEAST | {"from_the_future": 1}) == Shape("open", ())


def test_a_whole_number_serves_as_a_float():
    assert Point.from_json({"x": 2}) == Point(2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "test.shape/2"}, "Shape: the schema is 'test.shape/2', not 'test.shape/1'"),
        ({"schema": None}, "Shape: the schema is None"),
        ({"kind": "round"}, "Shape.kind: 'round' is not one of ('open', 'closed')"),
        ({"points": {}}, "Shape.points: expected a list, got dict"),
        ({"points": [{"x": "1"}]}, "Point.x: expected float, got '1'"),
        ({"points": [{"label": "a"}]}, "Point.x: the field is missing"),
        ({"points": [3]}, "Point: expected a JSON object, got int"),
        ({"corner": [1]}, "Shape.corner: expected 2 items, got 1"),
        ({"corner": [1, 2]}, "Shape.corner[1]: expected str, got 2"),
        ({"sizes": {"a": 1.5}}, "Shape.sizes['a']: expected int, got 1.5"),
        ({"sizes": []}, "Shape.sizes: expected an object, got list"),
        ({"count": True}, "Shape.count: expected int, got True"),
        ({"big": 1}, "Shape.big: expected bool, got 1"),
        ({"center": 4}, "Point: expected a JSON object, got int"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(RecordError) as caught:
        Shape.from_json(LEAST | change)
    assert str(caught.value).startswith(message)


def test_what_has_no_json_form_is_refused():
    with pytest.raises(RecordError, match="a set has no JSON form"):
        Shape("open", (), anything={1, 2}).to_json()
