"""What changed since a baseline."""

import pytest

from torchport.report import Report
from torchport.report.changes import changes_since

from .records_at_hand import bench, failed


def changes(before, now):
    found = changes_since(Report((before,)), Report((now,)))
    return [(change.what, change.before, change.now, change.kind) for change in found]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ({"status": "ok"}, {"status": "inaccurate"}, ("Status", "ok", "inaccurate", "worse")),
        ({"status": "failed"}, {"status": "ok"}, ("Status", "failed", "ok", "better")),
        ({"ops_remain": 3}, {"ops_remain": 5}, ("Torch Ops Remain", "3", "5", "worse")),
        ({"compiled_time": 0.03}, {"compiled_time": 0.01}, ("Speed-up", "1.00x", "3.00x", "better")),
        ({"pcc": 0.9999}, {"pcc": 0.99}, ("Accuracy (PCC)", "0.999900", "0.990000", "worse")),
        ({"pcc": 0.9999}, {"pcc": float("nan")}, ("Accuracy (PCC)", "0.999900", "nan", "worse")),
    ],
)
def test_a_change(before, now, change):
    assert changes(bench(**before), bench(**now)) == [change]


def test_noise_is_no_change():
    assert (
        changes(bench(compiled_time=0.0120, pcc=0.99999951), bench(compiled_time=0.0125, pcc=0.9999994)) == []
    )


def test_new_and_gone_rows_are_listed_and_regressions_come_first():
    before = Report((bench("a"), bench("b", ops_remain=0)))
    now = Report((bench("b", ops_remain=1), failed("c")))
    assert [(change.model, change.kind) for change in changes_since(before, now)] == [
        ("b", "worse"), ("c", "new"), ("a", "gone"),
    ]  # fmt: skip
