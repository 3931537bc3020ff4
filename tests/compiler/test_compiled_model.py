"""The compiled model: called like the model; correct for every input, or refuses with a reason."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchport
from torchport.compiler import compiled_model
from torchport.errors import CaptureError, RuntimeRefusal
from torchport.records import Fallbacks

X = torch.ones(2, 3)


def compiled(model=None, *args, **keywords):
    model = model or nn.Linear(3, 4).eval()
    return torchport.compile(model, args or (X,), target=keywords.pop("target", "host"), **keywords)


class TestRefusals:
    def test_gradients(self, target):
        model = compiled(target=target)
        with pytest.raises(RuntimeRefusal, match="an input requires gradients") as caught:
            model(X.clone().requires_grad_())
        assert 'torch.compile(model, backend="torchport")' in caught.value.remedy
        with torch.no_grad():
            assert not model(X.clone().requires_grad_()).requires_grad

    def test_the_mode(self):
        model = compiled()
        assert model.eval() is model
        with pytest.raises(RuntimeRefusal, match="cannot change to training mode"):
            model.train()
        model = compiled(nn.Dropout().train())
        assert model.train() is model
        with pytest.raises(RuntimeRefusal, match="cannot change to evaluation mode"):
            model.eval()

    @pytest.mark.parametrize("move", [pickle.dumps, copy.deepcopy, copy.copy])
    def test_pickling_and_copying(self, move):
        with pytest.raises(RuntimeRefusal, match="cannot be pickled or deep-copied") as caught:
            move(compiled())
        assert "copy the model itself and compile it again" in caught.value.remedy

    def test_inputs_that_do_not_fit_the_model(self, target):
        with pytest.raises(CaptureError, match="the model raises RuntimeError: mat1 and mat2"):
            compiled(target=target)(torch.ones(2, 5))

    def test_shapes_outside_dynamic_shapes(self, target):
        model = compiled(dynamic_shapes={"input": {0: Dim("rows", min=1, max=4)}}, target=target)
        assert model(torch.ones(4, 3)).shape == (4, 4)
        with pytest.raises(RuntimeRefusal, match=r"dimension 0 of .* is 5, outside 1 … 4"):
            model(torch.ones(5, 3))

    def test_dynamic_shapes_that_the_model_does_not_allow(self):
        with pytest.raises(CaptureError):
            compiled(dynamic_shapes={"input": {1: Dim("columns", min=1, max=8)}})


class TestState:
    def test_it_holds_the_model_s_own_parameters_under_their_names(self):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
        twin = compiled(model)
        assert dict(twin.named_parameters()).keys() == dict(model.named_parameters()).keys()
        assert all(ours is theirs for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True))
        assert twin.state_dict().keys() == model.state_dict().keys()

    def test_load_state_dict_through_it_reaches_the_model_and_is_noticed(self):
        model, other = nn.Linear(3, 4).eval(), nn.Linear(3, 4).eval()
        twin = compiled(model)
        twin.load_state_dict(other.state_dict())
        torch.testing.assert_close(twin(X), other(X).detach())
        torch.testing.assert_close(model(X), other(X))

    def test_it_follows_the_mode_of_the_model(self):
        model = nn.Dropout(1.0).eval()
        twin = compiled(model)
        assert twin(X).sum() == X.sum()
        model.train()
        assert twin(X).sum() == 0

    def test_it_shows_what_was_compiled_for_what(self):
        assert "Linear on host: 2 of 2 ops" in repr(compiled())


class TestPrograms:
    def test_each_kind_of_input_gets_one(self):
        model = compiled()
        for rows in (2, 3, 3, 2, 4):
            model(torch.ones(rows, 3))
        assert [str(next(iter(record.inputs.values()))) for record in model.programs] == [
            "float32[4, 3]",
            "float32[3, 3]",
            "float32[2, 3]",
        ]
        assert model.record is model.programs[-1]

    def test_not_more_than_a_few_are_kept(self, monkeypatch):
        monkeypatch.setattr(compiled_model, "_MOST_PROGRAMS", 2)
        model = compiled()
        for rows in (3, 4, 2, 5):
            assert model(torch.ones(rows, 3)).shape == (rows, 4)
        assert len(model.programs) == 2
        assert model.coverage.model == "Linear"

    def test_those_with_old_weights_go(self):
        linear = nn.Linear(3, 4).eval()
        model = compiled(linear)
        model(torch.ones(5, 3))
        with torch.no_grad():
            linear.weight.mul_(2)
        model(X)
        assert len(model.programs) == 1

    def test_threads_that_come_at_once_build_one(self):
        model = compiled()
        gate = threading.Barrier(4)
        results = []

        def call():
            gate.wait()
            results.append(model(torch.ones(7, 3)).shape)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [(7, 4)] * 4
        assert len(model.programs) == 2


@pytest.mark.usefixtures("devices")
def test_values_that_an_island_does_not_take_run_with_eager_torch(caplog):
    caplog.set_level("INFO")
    model = compiled(torch.relu, torch.ones(3), target="picky")
    assert model(torch.tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 2.0]
    assert "this call runs with eager torch: a negative number" in caplog.text


def test_a_lazily_negated_input_at_the_address_of_the_last_one(target):
    model = nn.Linear(3, 4).eval()
    ported = compiled(model, target=target)
    x = torch.rand(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(ported(x), model(x))
        torch.testing.assert_close(ported(torch._neg_view(x)), model(-x))


class TestFallbacks:
    @pytest.mark.usefixtures("devices")
    @pytest.mark.parametrize(
        ("device", "reason"),
        [("picky", "a negative number"), ("moody", "RuntimeError: the device is gone")],
    )
    def test_calls_that_eager_torch_runs_are_counted_and_said_once(self, device, reason, caplog):
        model = compiled(torch.exp, X, target=device)
        assert model.fallbacks == Fallbacks()
        for sign in (1, -1, 1, -1, -1):
            torch.testing.assert_close(model(sign * X), torch.exp(sign * X))
        assert model.fallbacks == Fallbacks(5, 3, reason)
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == 1
        assert said[0].endswith(f"this call runs with eager torch: {reason}")

    def test_nan_is_counted(self):
        model = compiled(torch.relu, X, target="openvino")
        nan = torch.full_like(X, float("nan"))
        torch.testing.assert_close(model(nan), nan, equal_nan=True)
        assert (model.fallbacks.calls, model.fallbacks.fallbacks) == (1, 1)
        assert model.fallbacks.last_reason

    def test_a_changed_weight_is_no_fallback(self, target):
        module = nn.Linear(3, 4).eval()
        model = compiled(module, target=target)
        with torch.no_grad():
            model(X)
            module.weight.mul_(2)
            model(X)
        assert model.fallbacks == Fallbacks(2, 0)


@pytest.mark.parametrize(
    "change", [lambda model: model.weight.mul_(2), lambda model: setattr(model, "bias", None)]
)
def test_a_model_that_is_said_not_to_change_is_not_looked_at(change):
    model = nn.Linear(3, 4).eval()
    frozen, follows = (compiled(model, options={"frozen": how}) for how in (True, False))
    with torch.no_grad():
        before = model(X)
        change(model)
        assert torch.equal(frozen(X), before)
        assert torch.equal(follows(X), model(X))
    assert len(frozen.built_programs) == 1
