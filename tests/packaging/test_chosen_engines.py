"""A package records what `auto` measured where it was saved; on another machine, engines are tried again."""

import logging

import pytest
import torch
from torch import nn

import torchport
from torchport.compiler import engine_choice
from torchport.packaging import load_model, loaded_model
from torchport.records import EngineTry, Tries
from torchport.targets.machine import machine

X = torch.randn(2, 4)


def tries():
    rows = (EngineTry("eager", "ok", 1.0, 1.0), EngineTry("host", "ok", 0.5, 1.0, transfers=2))
    return Tries("m", "memory", "host", rows, machine())


@pytest.fixture
def saved(tmp_path):
    """Returns a function that saves a model as if `auto` had chosen the host for it."""

    def save(**given):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
        compiled = torchport.compile(model, (X,), target="host")
        compiled.keep_tries(tries())
        torchport.save(compiled, tmp_path / "model.pt2", **given)
        return model, tmp_path / "model.pt2"

    return save


@pytest.fixture
def elsewhere(monkeypatch):
    """Pretends that this is another machine than the saving one; returns the objectives of trials here."""
    asked = []

    def try_all(captured, names, options, deadline):
        asked.append(options.objective)
        return [EngineTry("eager", "ok", 1.0, 1.0, memory_bytes=0)]

    for module in (load_model, loaded_model, engine_choice):
        monkeypatch.setattr(module, "machine", lambda: "another")
    monkeypatch.setattr(engine_choice, "_try_all", try_all)
    return asked


def test_on_the_same_machine_the_choice_is_kept(saved, monkeypatch):
    model, path = saved(with_graph=True)
    monkeypatch.setattr(engine_choice, "_try_all", lambda *given: pytest.fail("tried again"))
    loaded = torchport.load(path)
    assert torch.equal(loaded(X), model(X))
    assert loaded.tries == tries()
    assert torchport.inspect_package(path).tries == tries()
    more = torch.cat([X, X])
    torch.testing.assert_close(loaded(more), model(more))  # other shapes use the same engine


def test_on_another_machine_engines_are_measured_again(saved, elsewhere):
    model, path = saved(with_graph=True)
    loaded = torchport.load(path)
    assert loaded.tries == tries()
    assert torch.equal(loaded(X), model(X))
    assert elsewhere == ["memory"]
    assert (loaded.tries.chosen, loaded.tries.machine) == ("eager", "another")
    loaded(X)
    assert elsewhere == ["memory"]
    assert loaded.fallbacks.fallbacks == 0


def test_without_the_graph_the_saved_choice_is_used_with_a_warning(saved, elsewhere, caplog):
    model, path = saved()
    with caplog.at_level(logging.WARNING, "torchport"):
        loaded = torchport.load(path)
    assert "chosen on another machine" in caplog.text
    assert "with_graph=True" in caplog.text
    assert torch.equal(loaded(X), model(X))
    assert elsewhere == []
