"""`torchport compile`."""

import pytest

from torchport.records import BringUp


def test_a_model_that_equals_itself_exits_with_0(command, models):
    ran = command("compile", f"{models}::load", "--target", "host")
    assert ran.code == 0, ran.err
    assert "logits" in ran.out
    assert "1.000000" in ran.out
    assert "equals eager torch, all of it on host" in ran.out
    assert "Compiled in" in ran.out


def test_json_is_the_record(command, models):
    ran = command("compile", f"{models}::load", "--target", "host", "--json")
    found = BringUp.from_json(ran.json)
    assert (found.model, found.target, found.comparison.ok) == (f"{models}::load", "host", True)


def test_an_op_that_stays_is_a_finding(command, models):
    ran = command("compile", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu")
    assert ran.code == 1
    assert "aten.relu.default" in ran.out
    assert "equals eager torch, but 2 ops stay on the host" in ran.out


@pytest.fixture
def off_by_a_tenth(monkeypatch):
    from torchport.compiler import CompiledModel

    forward = CompiledModel.forward

    def off(self, *args, **kwargs):
        return {"logits": forward(self, *args, **kwargs)["logits"] + 0.1}

    monkeypatch.setattr(CompiledModel, "forward", off)


def test_a_result_that_is_off_is_a_finding(command, models, off_by_a_tenth):
    ran = command("compile", f"{models}::load", "--target", "host")
    assert ran.code == 1
    assert "❌" in ran.out
    assert "8 of 8 elements differ" in " ".join(ran.out.split())
    assert "1 output of 1 differ" in ran.out


def test_the_tolerance_can_be_given(command, models, off_by_a_tenth):
    line = ("compile", f"{models}::load", "--target", "host", "--atol", "0.2")
    assert command(*line).code == 0


def test_a_model_that_raises_fails(command, models):
    ran = command("compile", f"{models}::load_broken", "--target", "host", "--json")
    assert ran.code == 2
    assert "three is odd" in ran.json["what"]


def test_the_program_is_written(command, models, tmp_path):
    ran = command("compile", f"{models}::load", "--target", "ttnn", "--emit", str(tmp_path / "program.py"))
    assert ran.code == 0, ran.err
    assert "import ttnn" in (tmp_path / "program.py").read_text()
    assert (tmp_path / "program.safetensors").stat().st_size > 0
    assert "Simulated" in ran.out


def test_a_target_that_writes_no_program_fails_with_advice(command, models, tmp_path):
    ran = command("compile", f"{models}::load", "--target", "host", "--emit", str(tmp_path / "program.py"))
    assert ran.code == 2
    assert "writes no programs" in ran.err
