"""The distribution of differences by decade."""

import torch

from torchport.records import LEAST_DECADE
from torchport.verification import difference_histograms


def test_elements_are_counted_by_their_decade():
    expected = torch.zeros(7, dtype=torch.float64)
    actual = torch.tensor([0, 0.5, -2.0, 1.0, 1e-30, float("nan"), float("inf")], dtype=torch.float64)
    [found] = difference_histograms({"y": actual}, {"y": expected})
    decades = {LEAST_DECADE + place: count for place, count in enumerate(found.decades) if count}
    assert (found.path, found.zero, found.not_finite) == ("y", 1, 2)
    assert decades == {LEAST_DECADE: 1, 0: 2, 1: 1}  # 0.5 and 1 are at most 1, and 2 at most 10
    assert found.zero + sum(found.decades) + found.not_finite == 7


def test_integers_and_complex_numbers():
    assert difference_histograms(torch.tensor([3, 5]), torch.tensor([3, 4]))[0].zero == 1
    [found] = difference_histograms(torch.tensor([3 + 4j]), torch.tensor([0j]))
    assert found.decades[1 - LEAST_DECADE] == 1  # |3 + 4i| is 5


def test_outputs_that_do_not_match_are_left_out():
    assert difference_histograms({"a": torch.ones(2)}, {"a": torch.ones(3), "b": torch.ones(1)}) == ()
    assert difference_histograms(torch.ones(0), torch.ones(0))[0].decades == ()
