"""`torchport targets`."""

from torchport.targets import Availability, find


def test_each_target_is_listed_with_its_options(command):
    ran = command("targets")
    assert ran.code == 0
    assert "host" in ran.out
    assert "openvino" in ran.out
    assert "precision=float32" in " ".join(ran.out.split())


def test_a_target_that_does_not_work_says_why(command, monkeypatch):
    absent = Availability(False, "OpenVINO is not installed", 'pip install "torchport[openvino]"')
    monkeypatch.setattr(type(find("openvino")), "availability", lambda self: absent)
    ran = command("targets")
    assert ran.code == 0
    assert "❌" in ran.out
    assert '→ pip install "torchport[openvino]"' in " ".join(ran.out.split())


def test_json_lists_them(command):
    found = {target["name"]: target for target in command("targets", "--json").json}
    assert found["host"]["ok"] is True
    assert found["openvino"]["options"]["precision"] == "float32"
