"""Compiling a model and comparing it with the original."""

import pytest
import torch

from torchport.bringup import bring_up
from torchport.errors import SurveyError, TargetError, TorchportError
from torchport.records import BringUp
from torchport.verification import Tolerance

from .modules import Counts, Doubles, Raises, Remembers, linear, model


@pytest.mark.parametrize("target", ["host", "openvino"])
def test_a_compiled_model_matches_the_original(target, monkeypatch):
    monkeypatch.delenv("TORCHPORT_SPEED_TRIAL")
    found = bring_up(linear(), target=target)
    assert found.comparison.ok
    assert found.comparison.pcc > 0.99999
    assert (found.model, found.target, found.coverage.target) == ("linear", target, target)
    assert found.coverage.complete
    assert found.compile_time > 0
    assert found.first_call_time > 0
    assert (found.speed_trial_time > 0) is (target == "openvino")  # the host target has none
    assert found.speed_trial_time < found.compile_time
    assert BringUp.from_json(found.to_json()) == found


def test_a_wrong_result_is_found(change_compiled):
    change_compiled(lambda forward: lambda x: torch.zeros(5, 3))
    found = bring_up(linear(), target="host")
    assert not found.comparison.ok
    assert found.comparison.outputs[0].path == "output"


def test_the_tolerance_decides(change_compiled):
    change_compiled(lambda forward: lambda x: forward(x) + 0.01)
    assert not bring_up(linear(), target="host").comparison.ok
    assert bring_up(linear(), target="host", tolerance=Tolerance(0.0, 0.02)).comparison.ok


def test_mutated_inputs_are_compared():
    found = bring_up(model(Doubles()), target="host")
    assert found.comparison.ok
    assert [row.path for row in found.comparison.outputs] == ["output", "inputs.args[0]"]


def test_a_missing_input_mutation_is_found(change_compiled):
    change_compiled(lambda forward: lambda x: x * 2)
    found = bring_up(model(Doubles()), target="host")
    assert not found.comparison.ok
    assert [(row.path, row.ok) for row in found.comparison.outputs] == [
        ("output", True),
        ("inputs.args[0]", False),
    ]


def test_an_unwanted_input_mutation_is_found(change_compiled):
    def and_write(forward):
        def call(x):
            result = forward(x)
            x.zero_()
            return result

        return call

    change_compiled(and_write)
    found = bring_up(linear(), target="host")
    assert [(row.path, row.ok) for row in found.comparison.outputs] == [
        ("output", True),
        ("inputs.args[0]", False),
    ]


def test_outputs_of_any_class_are_compared():
    found = bring_up(model(Remembers()), target="host").comparison
    assert found.ok
    assert [row.path.rsplit(".", 1)[-1] for row in found.outputs] == ["last_hidden_state", "keys", "values"]


def test_a_model_that_mutates_its_buffers_matches_the_original():
    counting = model(Counts())
    assert bring_up(counting, target="host").comparison.ok
    assert counting.module.calls.tolist() == [0, 0]


def test_a_model_that_raises_is_named_with_its_error_and_line():
    with pytest.raises(TorchportError) as caught:
        bring_up(model(Raises()), target="host")
    assert "Raises" in caught.value.where
    assert "modules.py" in caught.value.where
    assert "ValueError: no such" in caught.value.what


def test_a_model_that_raises_when_it_is_called_again_is_refused(change_compiled):
    breaking = linear()

    def and_break(forward):
        breaking.module.forward = Raises().forward
        return forward

    change_compiled(and_break)
    with pytest.raises(SurveyError, match="linear: the model itself raises ValueError: no such"):
        bring_up(breaking, target="host")


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(TargetError, match="did you mean 'openvino'"):
        bring_up(linear(), target="opnvino")
