"""`torchport compile`."""

from dataclasses import replace

import pytest

from torchport.records import BringUp


def test_a_model_that_matches_eager_torch_exits_with_0(command, models):
    ran = command("compile", f"{models}::load", "--target", "host")
    assert ran.code == 0, ran.err
    assert "logits" in ran.out
    assert "1.000000" in ran.out
    assert "matches eager torch, all of it on host" in ran.out
    assert "Compiled in" in ran.out
    assert "speed trial" not in ran.out


def test_the_time_of_speed_trials_is_shown(command, models, monkeypatch):
    from torchport.bringup import model_trial

    made = model_trial.BringUp
    monkeypatch.setattr(model_trial, "BringUp", lambda *given: replace(made(*given), speed_trial_time=0.25))
    ran = command("compile", f"{models}::load", "--target", "host")
    assert "(speed trial 250.0 ms), first call" in ran.out, ran.out


def test_json_is_the_record(command, models):
    ran = command("compile", f"{models}::load", "--target", "host", "--json")
    found = BringUp.from_json(ran.json)
    assert (found.model, found.target, found.comparison.ok) == (f"{models}::load", "host", True)


def test_an_op_that_stays_on_the_host_is_a_finding(command, models):
    ran = command("compile", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu")
    assert ran.code == 1
    assert "aten.relu.default" in ran.out
    assert "matches eager torch, but 2 ops stay on the host" in ran.out


@pytest.fixture
def off_by_a_tenth(monkeypatch):
    from torchport.compiler import CompiledModel

    forward = CompiledModel.forward

    def off(self, *args, **kwargs):
        return {"logits": forward(self, *args, **kwargs)["logits"] + 0.1}

    monkeypatch.setattr(CompiledModel, "forward", off)


def test_an_inaccurate_result_is_a_finding(command, models, off_by_a_tenth):
    ran = command("compile", f"{models}::load", "--target", "host")
    assert ran.code == 1
    assert "❌" in ran.out
    assert "8 of 8 elements differ" in " ".join(ran.out.split())
    assert "1 output of 1 differ" in ran.out


def test_the_tolerance_can_be_given(command, models, off_by_a_tenth):
    line = ("compile", f"{models}::load", "--target", "host", "--atol", "0.2")
    assert command(*line).code == 0


def test_a_model_that_raises_exits_with_2(command, models):
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


@pytest.fixture
def engines_found(monkeypatch):
    """Lets a test set the results of `auto`, without starting processes."""
    from torchport.compiler import engine_choice
    from torchport.records import EngineTry

    def say(seconds):
        def try_all(captured, names, options, deadline):
            assert list(names) == ["openvino", "inductor"]
            eager = EngineTry("eager", "ok", 1.0, 1.0, transfers=0, fastest=1.0, eager_fastest=1.0)
            crashed = EngineTry("inductor", "crashed", reason="its process was killed by SIGSEGV")
            times = {"fastest": seconds, "eager_fastest": 1.0}
            return [eager, EngineTry("openvino", "ok", seconds, 1.0, transfers=2, **times), crashed]

        monkeypatch.setattr(engine_choice, "_try_all", try_all)

    return say


def test_auto_shows_all_engines_that_were_tried(command, models, engines_found):
    engines_found(0.25)
    line = ("compile", f"{models}::load", "--target", "auto", "--option", "engines=openvino,inductor")
    ran = command(*line, width=200)
    assert ran.code == 0, ran.err
    assert "auto chose openvino by latency" in ran.out
    [row] = [line.split() for line in ran.out.splitlines() if line.startswith("openvino")]
    assert row[:4] == ["openvino", "ok", "250.00", "0.25x"]
    assert "its process was killed by SIGSEGV" in ran.out
    assert "all of it on openvino" in ran.out
    found = BringUp.from_json(command(*line, "--json").json)
    assert (found.target, found.coverage.target, found.tries.chosen) == ("auto", "openvino", "openvino")


def test_eager_torch_being_fastest_is_not_a_finding(command, models, engines_found):
    engines_found(2.0)
    ran = command("compile", f"{models}::load", "--target", "auto", "--option", "engines=openvino,inductor")
    assert ran.code == 0, ran.err
    assert "matches eager torch, which is best here: no engine improves on it" in ran.out
