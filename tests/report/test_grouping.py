"""Ops that stay for the same reason are grouped."""

from torchport.report import group_stayed

from .records_at_hand import stayed


def test_the_largest_group_comes_first_with_each_place_once():
    ops = [
        stayed("aten.sort.default", "head"),
        stayed("aten.cumsum.default", "layer.0"),
        stayed("aten.cumsum.default", "layer.1"),
        stayed("aten.cumsum.default", "layer.1"),
    ]
    first, second = group_stayed(ops)
    assert (first.op, first.count, second.op, second.count) == (
        "aten.cumsum.default",
        3,
        "aten.sort.default",
        1,
    )
    assert first.places == (("layer.0", "model.py:12 in forward"), ("layer.1", "model.py:12 in forward"))


def test_another_reason_is_another_group():
    groups = group_stayed([stayed(), stayed(reason="dtype", detail="not on float64")])
    assert sorted(group.reason for group in groups) == ["dtype", "no_lowering"]
