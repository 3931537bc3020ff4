"""Each lowering, with various shapes and arguments: equals eager torch, and the real library accepts it."""

import pytest
import torch

import torchport
from targets.ttnn.cases import ACROSS, BFLOAT16_CASES, CASES, DOWN, IMAGES
from targets.ttnn.programs import assert_accepted, compiled_for, store
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
