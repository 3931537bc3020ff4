"""`dynamic_shapes` is mapped to the inputs' tensors, and shapes are checked on each call."""

import pytest
import torch
from torch.export import Dim

from torchport.capture import export
from torchport.capture.exported.dynamic_shapes import ShapeLimits
from torchport.errors import CaptureError, RuntimeRefusal

BATCH = Dim("batch", min=2, max=8)


def model(x, rest=None, *, mask=None):
    y = x * 2
    for item in (rest or {}).values():
        y = y + item
    return y if mask is None else y * mask


def limits(*args, dynamic_shapes, **kwargs):
    captured = export(model, args, kwargs, name="model", dynamic_shapes=dynamic_shapes)
    return ShapeLimits.of(captured.program, captured.inputs.paths)


def allowed(limits, *shapes):
    try:
        limits.check([torch.empty(shape) for shape in shapes], "model")
    except RuntimeRefusal as refusal:
        return str(refusal)
    return True


def test_a_dimension_varies_within_its_range():
    limit = limits(torch.ones(3, 4), dynamic_shapes={"x": {0: BATCH}})
    assert allowed(limit, (2, 4)) is True
    assert allowed(limit, (8, 4)) is True
    assert allowed(limit, (9, 4)) == (
        "model: dimension 0 of [0][0] is 9, outside 2 … 8: widen dynamic_shapes"
    )
    assert "is 1, outside 2 … 8" in allowed(limit, (1, 4))
    assert "dimension 1 of [0][0] is 5, but must be 4" in allowed(limit, (3, 5))
    assert "has 1 dimensions, 2 expected" in allowed(limit, (3,))
    assert "2 tensors are given, 1 expected" in allowed(limit, (3, 4), (3, 4))


def test_inputs_by_position_by_name_and_nested():
    limit = limits(
        torch.ones(3, 4),
        {"a": torch.ones(3, 4)},
        mask=torch.ones(3, 4),
        dynamic_shapes={"x": {0: BATCH}, "rest": {"a": {0: BATCH}}, "mask": {0: BATCH}},
    )
    assert allowed(limit, (5, 4), (5, 4), (5, 4)) is True
    assert "is 6, but must equal 5" in allowed(limit, (5, 4), (6, 4), (5, 4))


def test_a_dimension_that_follows_from_another():
    def doubled(x, y):
        return torch.cat([x, x]) + y

    captured = export(doubled, (torch.ones(3), torch.ones(6)), dynamic_shapes=({0: BATCH}, {0: 2 * BATCH}))
    limit = ShapeLimits.of(captured.program, captured.inputs.paths)
    assert allowed(limit, (4,), (8,)) is True
    assert "is 9, but must be 8" in allowed(limit, (4,), (9,))


@pytest.mark.parametrize(
    ("dynamic_shapes", "message"),
    [
        ({"msk": {0: BATCH}}, "names the input 'msk', which is not among the inputs: did you mean 'mask'?"),
        (({0: BATCH}, None, None, None), "dynamic_shapes has 4 entries for 3 inputs"),
        ("btach", "unknown dynamic_shapes 'btach': did you mean 'batch'?"),
        (7, "dynamic_shapes must be a dict or a tuple, not int"),
        ({"rest": {"b": {0: BATCH}}}, "names rest['b'], which is not in the input"),
        ({"rest": ({0: BATCH}, {0: BATCH})}, "has 2 entries for the 1 tensors of rest"),
        ({"rest": 3}, "dynamic_shapes does not match the input rest, a dict"),
    ],
)
def test_what_fits_no_input_is_refused(dynamic_shapes, message):
    with pytest.raises(CaptureError) as caught:
        limits(
            torch.ones(3, 4),
            {"a": torch.ones(3, 4)},
            mask=torch.ones(3, 4),
            dynamic_shapes=dynamic_shapes,
        )
    assert message in str(caught.value)


def test_the_names_of_a_module_s_inputs_are_those_of_its_forward():
    captured = export(torch.nn.ReLU(), (torch.ones(3),), dynamic_shapes={"input": {0: BATCH}})
    assert allowed(ShapeLimits.of(captured.program, captured.inputs.paths), (5,)) is True


def test_a_dimension_that_is_derived_from_one_that_no_input_has():
    half = Dim("half", min=2, max=8)
    limit = limits(torch.ones(6, 8), dynamic_shapes={"x": {0: 2 * half, 1: 2 * half + 2}})
    assert allowed(limit, (4, 6)) is True
    assert allowed(limit, (16, 18)) is True
    assert "is 7, but must be" in allowed(limit, (7, 9))
    assert "is 9, outside 2 … 8" in allowed(limit, (18, 20))
    assert "is 1, outside 2 … 8" in allowed(limit, (2, 4))
    assert "dimension 1 of [0][0] is 12, but must be 10" in allowed(limit, (8, 12))


def test_the_names_of_a_function_s_inputs_are_those_of_its_parameters():
    captured = export(
        lambda image, scale: image * scale,
        (torch.ones(3, 4), torch.ones(3, 1)),
        dynamic_shapes={"image": {0: BATCH}, "scale": {0: BATCH}},
    )
    assert allowed(ShapeLimits.of(captured.program, captured.inputs.paths), (5, 4), (5, 1)) is True
