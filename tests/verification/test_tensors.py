"""One tensor compared with another: PCC, errors and tolerance for every kind of value."""

import math

import pytest
import torch

from torchport.errors import VerificationError
from torchport.verification import LOW_PRECISION, TOLERANCES, Tolerance, compare_tensors, tolerance_for

NAN, INF = math.nan, math.inf


def numpy_pcc(actual, expected):
    return float(torch.corrcoef(torch.stack([actual.double().flatten(), expected.double().flatten()]))[0, 1])


def test_errors_and_pcc_are_those_of_arithmetic():
    row = compare_tensors(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]), path="logits")
    assert (row.path, row.ok) == ("logits", False)
    assert row.max_absolute == 1.0
    assert row.max_relative == pytest.approx(1 / 3)
    # Means are 7/3 and 2: the sums of products are 3 (both), 14/3 and 2 (each).
    assert row.pcc == pytest.approx(3 / math.sqrt(14 / 3 * 2))
    assert row.detail == (
        "1 of 3 elements differ (allowed: rtol 0.001, atol 0.001); at [2] it is 4, expected 3"
    )


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_pcc_equals_torchs_own_at_any_scale(scale):
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    actual = expected + 0.1 * torch.randn(50, 7, generator=generator, dtype=torch.float64)
    row = compare_tensors(actual * scale, expected * scale)
    assert row.pcc == pytest.approx(numpy_pcc(actual, expected), abs=1e-12)


def test_pcc_does_not_overflow():
    expected = torch.tensor([1e308, -1e308, 5e307], dtype=torch.float64)
    assert compare_tensors(expected * 0.5, expected).pcc == pytest.approx(1.0)


def test_opposite_is_minus_one():
    one = torch.tensor([1.0, 2.0, 3.0])
    assert compare_tensors(-one, one).pcc == pytest.approx(-1.0)


def test_equal_nan_and_infinity_are_equal():
    values = torch.tensor([NAN, INF, -INF, 1.0, 2.0])
    row = compare_tensors(values.clone(), values)
    assert (row.ok, row.pcc, row.max_absolute, row.max_relative) == (True, 1.0, 0.0, 0.0)


def test_pcc_is_of_the_finite_places():
    row = compare_tensors(torch.tensor([NAN, 1.0, 2.0, 4.0]), torch.tensor([NAN, 1.0, 2.0, 3.0]))
    assert row.pcc == pytest.approx(3 / math.sqrt(14 / 3 * 2))
    assert row.max_absolute == 1.0


@pytest.mark.parametrize(
    ("got", "wanted"), [(NAN, 1.0), (1.0, NAN), (INF, -INF), (INF, 1.0), (1.0, INF), (NAN, INF)]
)
def test_mismatching_nan_and_infinity_are_not_ok(got, wanted):
    row = compare_tensors(torch.tensor([1.0, 2.0, got]), torch.tensor([1.0, 2.0, wanted]))
    assert (row.ok, row.pcc, row.max_absolute) == (False, 0.0, INF)
    assert "at [2]" in row.detail


@pytest.mark.parametrize(
    ("got", "wanted", "ok", "pcc"),
    [
        ([3.0, 3.0], [3.0, 3.0], True, 1.0),
        ([3.0, 3.0005], [3.0, 3.0], True, 1.0),
        ([3.0, 4.0], [3.0, 3.0], False, 0.0),
        ([3.0, 3.0], [3.0, 4.0], False, 0.0),
        ([0.0, 0.0], [0.0, 0.0], True, 1.0),
        ([0.0, 0.0], [1.0, 2.0], False, 0.0),
        ([2.0], [2.0005], True, 1.0),
        ([2.0], [3.0], False, 0.0),
        ([], [], True, 1.0),
    ],
)
def test_constant_zero_single_and_empty_tensors(got, wanted, ok, pcc):
    row = compare_tensors(torch.tensor(got), torch.tensor(wanted))
    assert (row.ok, row.pcc) == (ok, pcc)


def test_rounding_noise_on_a_constant_is_a_constant():
    noise = torch.tensor([1.0, 1.0 + 2**-23, 1.0])
    assert compare_tensors(noise, noise.flip(0).roll(1)).pcc == 1.0


def test_zero_dimensional():
    assert compare_tensors(torch.tensor(2.0), torch.tensor(2.0)).ok
    assert "at []" in compare_tensors(torch.tensor(2.0), torch.tensor(3.0)).detail


def test_small_values_are_not_taken_for_a_constant():
    """The PCC reveals wrong probabilities even if all of them are below the absolute tolerance."""
    expected = torch.tensor([1e-4, 2e-4, 3e-4, 4e-4])
    row = compare_tensors(expected.flip(0), expected)
    assert row.pcc == pytest.approx(-1.0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.uint64, torch.bool])
def test_integers_are_exact_whatever_the_tolerance(dtype):
    expected = torch.tensor([0, 1, 1], dtype=dtype)
    wrong = torch.tensor([0, 1, 0], dtype=dtype)
    assert compare_tensors(expected.clone(), expected).ok
    row = compare_tensors(wrong, expected, tolerance=Tolerance(10.0, 10.0))
    assert (row.ok, row.max_absolute) == (False, 1.0)


def test_integers_beyond_float64_are_told_apart():
    big = torch.tensor([2**62, 5])
    assert not compare_tensors(big + 1, big).ok


@pytest.mark.parametrize("dtype", sorted(TOLERANCES, key=str))
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_dtype_of_the_table_is_compared(dtype):
    expected = torch.tensor([1.0, 2.0, 4.0, 8.0]).to(dtype)
    row = compare_tensors(expected.clone(), expected)
    assert (row.ok, row.pcc, row.max_absolute) == (True, 1.0, 0.0)
    wrong = torch.tensor([1.0, 2.0, 4.0, 32.0]).to(dtype)
    row = compare_tensors(wrong, expected)
    assert (row.ok, row.max_absolute, row.max_relative) == (False, 24.0, 3.0)


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(torch.float32, 1e-3), (torch.float64, 1e-7), (torch.bfloat16, 2e-2), (torch.int64, 0.0)],
)
def test_tolerance_of_a_dtype(dtype, rtol):
    assert tolerance_for(dtype).rtol == rtol


def test_the_tolerance_is_relative_and_absolute():
    expected = torch.tensor([1000.0, 0.0])
    assert compare_tensors(expected + torch.tensor([0.9, 0.0009]), expected).ok
    assert not compare_tensors(expected + torch.tensor([1.1, 0.0]), expected).ok
    assert not compare_tensors(expected + torch.tensor([0.0, 0.0011]), expected).ok
    assert compare_tensors(expected + torch.tensor([0.0, 0.4]), expected, tolerance=Tolerance(0, 0.5)).ok


def test_complex_errors_are_absolute_values():
    expected = torch.tensor([3 + 4j, 1000 + 0j])
    row = compare_tensors(torch.tensor([3 + 4j, 1000 + 0.5j]), expected)
    assert row.ok  # 0.5 is less than a thousandth of 1000, though the imaginary part should be 0
    assert row.max_absolute == pytest.approx(0.5)
    assert row.max_relative == pytest.approx(0.0005)
    assert compare_tensors(expected.conj(), expected).max_absolute == pytest.approx(8.0)


def test_a_single_complex_number_off_has_no_correlation():
    assert compare_tensors(torch.tensor([1 + 2j]), torch.tensor([10 + 20j])).pcc == 0.0


def test_the_relative_error_ignores_expected_zeros():
    row = compare_tensors(torch.tensor([1e-9, 2.0]), torch.tensor([0.0, 1.0]))
    assert row.max_relative == 1.0


@pytest.mark.parametrize(
    ("actual", "detail"),
    [
        (torch.ones(3), "the shape is [3], expected [2]"),
        (torch.ones(2, 1), "the shape is [2, 1], expected [2]"),
        (torch.ones(2, dtype=torch.float64), "the dtype is torch.float64, expected torch.float32"),
        (torch.ones(2).to_sparse(), "the layout is torch.sparse_coo, expected torch.strided"),
    ],
)
def test_another_form_is_not_compared_by_value(actual, detail):
    row = compare_tensors(actual, torch.ones(2))
    assert (row.ok, row.pcc, row.max_absolute, row.detail) == (False, 0.0, INF, detail)


def test_sparse_and_gradient_tensors_have_values():
    dense = torch.eye(3)
    assert compare_tensors(dense.to_sparse(), dense.to_sparse()).ok
    assert not compare_tensors((2 * dense).to_sparse(), dense.to_sparse()).ok
    assert compare_tensors(dense.clone().requires_grad_(), dense).ok


def test_strides_do_not_matter():
    expected = torch.arange(6.0).reshape(2, 3)
    assert compare_tensors(expected.t().contiguous().t(), expected).ok


def test_a_tensor_without_values_is_refused():
    with pytest.raises(VerificationError, match="'meta' device"):
        compare_tensors(torch.ones(2, device="meta"), torch.ones(2, device="meta"))


def test_a_tensor_may_be_close_as_a_whole():
    allowed = Tolerance(0.0, 0.0, pcc=0.99)
    expected = torch.linspace(-1, 1, 101)
    noisy = expected + 0.05 * torch.linspace(0, 60, 101).sin()
    assert not compare_tensors(noisy, expected, tolerance=Tolerance(0.0, 0.0)).ok
    assert compare_tensors(noisy, expected, tolerance=allowed).ok
    wrong = expected.clone()
    wrong[:30] = 0  # its PCC is 0.9
    assert not compare_tensors(wrong, expected, tolerance=allowed).ok
    # The PCC of these is 1: it ignores scale and offset.
    assert not compare_tensors(expected * 1.2, expected, tolerance=allowed).ok
    assert not compare_tensors(expected + 0.2, expected, tolerance=allowed).ok
    odd = expected.clone()
    odd[3] = torch.nan
    assert not compare_tensors(odd, expected, tolerance=allowed).ok


def test_variation_below_the_devices_resolution_is_judged_by_its_error():
    wanted = 0.65 + 0.001 * torch.rand(64, generator=torch.Generator().manual_seed(0))
    got = wanted.to(torch.bfloat16).float()
    assert compare_tensors(got, wanted).pcc < 0.9
    row = compare_tensors(got, wanted, tolerance=LOW_PRECISION)
    assert (row.ok, row.pcc) == (True, 1.0)
    far = compare_tensors(got + 0.2, wanted, tolerance=LOW_PRECISION)
    assert (far.ok, far.pcc) == (False, 0.0)


def test_a_constant_result_for_varying_values_has_a_pcc_of_zero():
    wanted = torch.linspace(0.62, 0.68, 64)
    row = compare_tensors(torch.full_like(wanted, 0.9), wanted, tolerance=LOW_PRECISION)
    assert (row.ok, row.pcc) == (False, 0.0)


def test_results_as_close_as_the_storage_dtype_allows_are_accurate_whatever_the_pcc():
    # The values are a few rounding steps of bfloat16 apart: stored in it, their PCC is 0.96.
    wanted = 0.5 + 0.015 * torch.rand(4096, generator=torch.Generator().manual_seed(0))
    stored = wanted.to(torch.bfloat16).float()
    row = compare_tensors(stored, wanted, tolerance=LOW_PRECISION)
    assert (row.ok, row.excess) == (True, 1.0)
    assert row.pcc < 0.99
    assert row.is_accurate(0.99)
    error = float((stored - wanted).square().mean().sqrt())
    far = compare_tensors(wanted + 2.5 * error, wanted + 0.0, tolerance=LOW_PRECISION)
    assert far.excess is None  # its PCC is 1
    noise = torch.randn(4096, generator=torch.Generator().manual_seed(1)) * 2.5 * error
    wrong = compare_tensors(wanted + noise, wanted, tolerance=LOW_PRECISION)
    assert wrong.excess == pytest.approx(2.5, rel=0.05)
    assert not wrong.is_accurate(0.99)
    assert not wrong.is_accurate(0.95)
    assert compare_tensors(wanted + noise, wanted).excess is None
