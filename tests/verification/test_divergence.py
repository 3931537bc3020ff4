"""The op at which two runs diverge."""

import pytest
import torch

from torchport.errors import VerificationError
from torchport.verification import Divergence, Tolerance, first_divergence


def run(**values):
    return [(name, torch.tensor(value)) for name, value in values.items()]


def test_the_first_of_several_is_found():
    good = run(conv=[1.0, 2.0], relu=[3.0, 4.0], out=[5.0, 6.0])
    bad = run(conv=[1.0, 2.0], relu=[3.0, 9.0], out=[5.0, 60.0])
    found = first_divergence(bad, good)
    assert (found.op, found.position, found.last_alike) == ("relu", 1, "conv")
    assert found.comparison.max_absolute == 5.0
    assert Divergence.from_json(found.to_json()) == found


def test_equal_runs_have_none():
    assert first_divergence(run(a=[1.0]), run(a=[1.0])) is None
    assert first_divergence([], []) is None


def test_the_tolerance_is_heeded():
    assert first_divergence(run(a=[1.0]), run(a=[1.4])) is not None
    assert first_divergence(run(a=[1.0]), run(a=[1.4]), tolerance=Tolerance(0.5, 0.0)) is None


def test_the_first_op_has_none_before_it():
    found = first_divergence(run(a=[1.0]), run(a=[2.0]))
    assert (found.position, found.last_alike) == (0, "")


def test_ops_that_one_run_does_not_report_are_skipped():
    device = run(island=[0.0], out=[2.0])
    eager = run(conv=[1.0], relu=[1.0], out=[1.0])
    found = first_divergence(device, eager)
    assert (found.op, found.position) == ("out", 2)


def test_a_repeated_name_is_matched_with_its_next_occurrence():
    good = [("step", torch.tensor([1.0])), ("step", torch.tensor([2.0]))]
    bad = [("step", torch.tensor([1.0])), ("step", torch.tensor([3.0]))]
    found = first_divergence(bad, good)
    assert (found.position, found.comparison.max_absolute) == (1, 1.0)


def test_any_iterable_will_do():
    assert first_divergence(iter(run(a=[1.0])), iter(run(a=[2.0]))).op == "a"


@pytest.mark.parametrize(("left", "right"), [(run(a=[1.0]), run(b=[1.0])), ([], run(b=[1.0]))])
def test_runs_without_a_common_op_are_refused(left, right):
    with pytest.raises(VerificationError, match="no op in common"):
        first_divergence(left, right)
