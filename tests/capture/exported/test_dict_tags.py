"""Dicts that were touched are known by their tags."""

import sys

import pytest
from torch import nn

from torchport.capture.exported import dict_tags
from torchport.capture.exported.dict_tags import DictTags
from torchport.capture.exported.module_state import ModuleState


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="dicts have no tags any more")
def test_tags_work_here():
    assert dict_tags.tags_work()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(a=2),
        lambda d: d.__setitem__("b", 1),
        lambda d: d.pop("a"),
        lambda d: d.clear(),
        lambda d: d.setdefault("c", 1),
        lambda d: d.__ior__({"a": 5}),
        lambda d: d.popitem(),
    ],
)
def test_a_touch_is_seen(change):
    other, held = {"x": 1}, {"a": 1}
    tags = DictTags([other, held])
    assert tags.untouched_since(tags.read())
    change(held)
    assert not tags.untouched_since(tags.read())
    tags.touch(tags.read())
    assert tags.untouched_since(tags.read())


@pytest.mark.parametrize("works", [True, False])
def test_state_is_guarded_with_and_without_tags(works, monkeypatch):
    monkeypatch.setattr(dict_tags, "tags_work", lambda: works)
    model = nn.Linear(2, 2)
    model.level = 1.5
    state = ModuleState(model)
    assert state.unchanged()
    model.level = float("1.5")
    assert state.unchanged()
    assert state.unchanged()
    model.level = 2.5
    assert not state.unchanged()
    model.level = 1.5
    assert state.unchanged()
    model.bias = None
    assert not state.unchanged()
