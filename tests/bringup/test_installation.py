"""What is installed, and which targets work."""

import dataclasses
import platform

import torch

from torchport.bringup import describe_installation, describe_targets
from torchport.bringup import installation as module
from torchport.records import Check, Installation
from torchport.targets import Availability


def test_versions_are_those_imported():
    found = describe_installation()
    assert found.versions["python"] == platform.python_version()
    assert found.versions["torch"] == torch.__version__
    assert Installation.from_json(found.to_json()) == found


def test_a_package_that_is_missing_has_no_version(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("torch", "no-such-package"))
    assert describe_installation().versions["no-such-package"] == ""


def test_torch_finds_torchport():
    found = describe_installation()
    assert [check.ok for check in found.checks] == [True, True, True]
    assert found.ok


def test_a_missing_entry_point_is_a_finding(monkeypatch):
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    found = describe_installation()
    assert [check.ok for check in found.checks] == [False, False, True]
    assert "pip install" in found.checks[0].remedy
    assert not found.ok


def test_the_size_of_the_cache_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "cache"))
    assert describe_installation().cache_bytes == 0
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "x.island").write_bytes(b"12345")
    found = describe_installation()
    assert (found.cache_path, found.cache_bytes) == (str(tmp_path / "cache"), 5)


def test_the_host_always_works():
    host = next(target for target in describe_targets() if target.name == "host")
    assert host.ok
    assert host.options["cache"] == "True"


def test_a_target_that_does_not_work_says_why(monkeypatch):
    from torchport.targets import find

    absent = Availability(False, "OpenVINO is not installed", 'pip install "torchport[openvino]"')
    monkeypatch.setattr(type(find("openvino")), "availability", lambda self: absent)
    status = next(target for target in describe_targets() if target.name == "openvino")
    assert (status.ok, status.detail, status.remedy) == (False, absent.detail, absent.remedy)


def test_without_targets_or_with_a_failed_check_it_is_not_ok():
    whole = describe_installation()
    assert not dataclasses.replace(whole, targets=()).ok
    assert not dataclasses.replace(whole, checks=(Check("a", False, "b"),)).ok
