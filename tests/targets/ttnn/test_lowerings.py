"""Each lowering, with various shapes and arguments: equals eager torch, and the real library accepts it."""

import math

import pytest
import torch
from torch.nn import functional

import torchport
from targets.ttnn.cases import ACROSS, BFLOAT16_CASES, CASES, DOWN, IMAGES
from targets.ttnn.programs import assert_accepted, compiled_for, random, store
from torchport.structure import flatten


def sliced(cases):
    """Return cases as parameters: every seventh runs in `make test`, all in `make conformance`."""
    return [
        pytest.param(name, marks=[] if place % 7 == 0 else [pytest.mark.conformance])
        for place, name in enumerate(cases)
    ]


def results(function, args):
    with torch.no_grad():
        return flatten(function(*args)).leaves


@pytest.mark.parametrize("name", sliced(CASES))
def test_equals_eager_in_float32(name):
    function, args = CASES[name]
    compiled = compiled_for(function, *args, dtype="float32")
    assert compiled.coverage.ops_remain == 0, [row.detail for row in compiled.coverage.stayed]
    for ours, theirs in zip(results(compiled, args), results(function, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3, check_stride=False)


@pytest.mark.parametrize("name", sliced(BFLOAT16_CASES | CASES))
def test_is_near_eager_in_bfloat16(name):
    function, args = (CASES | BFLOAT16_CASES)[name]
    compiled = compiled_for(function, *args)
    assert compiled.coverage.ops_remain == 0, [row.detail for row in compiled.coverage.stayed]
    for ours, theirs in zip(results(compiled, args), results(function, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=5e-2, check_stride=False)


INDEXED = {
    "single pixels are looked up instead of whole rows": lambda x: x[:, :, ACROSS, ACROSS],
    "several dimensions after the first": lambda x: x[:, DOWN[:, 0] % 6, DOWN[:, 0] % 6],
    "elements are overwritten": lambda x: torch.ops.aten.index_put(
        x, [None, None, DOWN, ACROSS], torch.ones(2, 6, 5, 4)
    ),
    "the added values are broadcast": lambda x: torch.ops.aten.index_put(
        x, [None, None, DOWN, ACROSS], torch.ones(5, 4), accumulate=True
    ),
}


@pytest.mark.parametrize("reason", INDEXED)
def test_what_is_looked_up_otherwise_stays_with_its_reason(reason):
    compiled = compiled_for(lambda x: INDEXED[reason](x + 1), IMAGES)
    assert any(reason in row.detail for row in compiled.coverage.stayed)
    torch.testing.assert_close(compiled(IMAGES), INDEXED[reason](IMAGES + 1), rtol=2e-2, atol=2e-2)


def test_rows_that_are_not_there_raise_as_in_eager_torch():
    with pytest.raises((IndexError, torchport.TorchportError), match="out of bounds"):
        compiled_for(lambda x: x[:, :, DOWN + 1, ACROSS], IMAGES)(IMAGES)


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "bfloat8_b"])
def test_the_real_library_takes_every_call(dtype, tmp_path):
    cases = CASES if dtype == "float32" else CASES | BFLOAT16_CASES
    folders = [
        store(compiled_for(function, *args, dtype=dtype), tmp_path / name)
        for name, (function, args) in cases.items()
    ]
    assert_accepted(folders)


NAN_OF_INFINITIES = {
    "pixels": lambda x: x[:, :, DOWN, ACROSS],
    "nearest": lambda x: functional.interpolate(x, size=(17, 13)),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, (5, 4)),
    "put": lambda x: torch.ops.aten.index_put(
        x[:, :, :5, :4], [None, None, DOWN % 5, ACROSS % 4], x[:, :, :5, :4], accumulate=True
    ),
}
HIDING = {
    "le": lambda y: y <= 9,
    "le_of_sigmoid": lambda y: y.sigmoid() <= 0.6,
    "bool": lambda y: y.relu().to(torch.bool),
    "sign": torch.sign,
    "argmax": lambda y: y.argmax(1),
}


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("name", NAN_OF_INFINITIES)
def test_no_comparison_hides_that_an_infinite_pixel_became_nan(name, hiding):
    images = IMAGES.clone()
    images[0, :, 3, 0] = torch.tensor([-math.inf, math.inf]).repeat(3)

    def function(x):
        return HIDING[hiding](NAN_OF_INFINITIES[name](x + 1) * 2)

    compiled = compiled_for(function, IMAGES, dtype="float32")
    assert any("an infinite element into NaN" in row.detail for row in compiled.coverage.stayed)
    for given in (IMAGES, images):
        torch.testing.assert_close(compiled(given), function(given), equal_nan=True)


SOME = torch.tensor([[False, True, True, False, False], [False] * 5, [True] * 5])


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("shown", [SOME, SOME[1:2], SOME[1:, None, None], SOME.expand(2, 2, 3, 5)])
def test_queries_without_keys_attend_to_nothing(shown, is_float):
    mask = shown.contiguous()
    if is_float:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)

    def function(q, k, mask):
        found = functional.scaled_dot_product_attention(q, k, k, mask)
        return found, found == 0

    args = random(2, 2, 3, 8), random(2, 2, 5, 8), mask
    compiled = compiled_for(function, *args, dtype="float32")
    for ours, theirs in zip(compiled(*args), function(*args), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("width", [8, 32])
def test_an_infinite_number_is_not_lost_in_queries_without_keys(width, place):
    def function(q, k, v, mask):
        return functional.scaled_dot_product_attention(q, k, v, mask)

    tensors, mask = [random(2, 2, 5, width) for _ in range(3)], torch.ones(5, 5, dtype=torch.bool)
    compiled = compiled_for(function, *tensors, mask, dtype="float32")
    tensors[place][0, 0, 0, 0] = math.inf
    mask[1] = False
    expected = function(*tensors, mask)
    assert expected.isnan().any()
    assert torch.equal(compiled(*tensors, mask).isnan(), expected.isnan())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.interpolate((x > 0).float(), size=(17, 13)).to(torch.bool),
        lambda x: functional.interpolate((x > 0).long().float(), size=(17, 13), mode="bilinear") > 0.7,
        lambda x: functional.interpolate(x, scale_factor=2) > 0,
        lambda x: functional.adaptive_avg_pool2d(x, 1) > 0,
    ],
)
def test_comparisons_of_finite_or_copied_pixels_run_on_the_device(function):
    compiled = compiled_for(function, IMAGES, dtype="float32")
    assert compiled.coverage.ops_remain == 0, [row.detail for row in compiled.coverage.stayed]
    assert torch.equal(compiled(IMAGES), function(IMAGES))
