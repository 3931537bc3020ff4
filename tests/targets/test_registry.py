"""The registry of targets, and plug-ins."""

from importlib.metadata import EntryPoint

import pytest

from torchport import targets
from torchport.errors import TargetError
from torchport.targets import registry
from torchport.targets.host import HostTarget


class Device(HostTarget):
    name = "device"


BROKEN = object()


@pytest.fixture
def plug_ins(monkeypatch):
    """Fake another distribution that provides targets."""

    def install(**entries):
        found = [EntryPoint(name, value, "torchport.targets") for name, value in entries.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)
        registry._all.cache_clear()

    yield install
    monkeypatch.undo()
    registry._all.cache_clear()


def test_the_built_in_ones_are_there():
    assert {"host", "openvino"} <= set(targets.names())
    assert targets.find("host").name == "host"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("opnvino", "did you mean 'openvino'?"),
        ("tpu", "choose from auto, host, inductor, onnxruntime, openvino, ttnn"),
    ],
)
def test_an_unknown_one_names_the_nearest(name, advice):
    with pytest.raises(TargetError) as caught:
        targets.find(name)
    assert str(caught.value) == f"no target named {name!r}: {advice}"


def test_another_distribution_s_target_is_found(plug_ins):
    plug_ins(device=f"{__name__}:Device")
    assert targets.find("device").name == "device"
    assert "host" in targets.names()


def test_a_broken_plug_in_takes_no_other_along(plug_ins, caplog):
    plug_ins(broken="no.such.module:TARGET", device=f"{__name__}:Device")
    assert "device" in targets.names()
    assert "the target plug-in broken cannot be loaded" in caplog.text


def test_what_is_no_target_takes_no_other_along(plug_ins, caplog):
    plug_ins(broken=f"{__name__}:BROKEN", device=f"{__name__}:Device")
    assert "device" in targets.names()
    assert "the target plug-in broken" in caplog.text


def test_a_plug_in_cannot_replace_a_built_in_one(plug_ins, caplog):
    plug_ins(host=f"{__name__}:Impostor")
    assert type(targets.find("host")) is HostTarget
    assert "'host' is taken" in caplog.text


class Impostor(HostTarget):
    name = "host"
