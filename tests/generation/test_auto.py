"""`auto` for a model that generates: engines are tried on a step, and the chosen one beats eager torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import torchport
from generation.models import small_encoder_decoder, tiny_llama
from torchport import targets
from torchport.compiler import compile_model, engine_choice
from torchport.compiler.generation_choice import capture_step, time_tokens
from torchport.errors import RuntimeRefusal
from torchport.records import EngineTry

IDS = torch.tensor([[5, 17, 3, 40]])


def row(engine, seconds, **facts):
    times = {"seconds": seconds, "eager_seconds": 1.0, "fastest": seconds, "eager_fastest": 1.0}
    return EngineTry(engine, "ok", **{**times, "transfers": 2, **facts})


EAGER = row("eager", 1.0, transfers=0)


@pytest.fixture(scope="module")
def model():
    return tiny_llama(num_hidden_layers=1)


@pytest.fixture
def found(monkeypatch):
    """Lets a test set the results of trials and of generating; records what was tried and which generated."""
    tried, generated = [], []

    def say(rows, tokens):
        def timed(tried_row, *given):
            generated.append(tried_row.engine)
            seconds = tokens[tried_row.engine]
            return replace(tried_row, unit="token", seconds=seconds, fastest=seconds)

        monkeypatch.setattr(
            engine_choice, "_try_all", lambda captured, *given: [tried.append(captured), *rows][1:]
        )
        monkeypatch.setattr(compile_model, "time_tokens", timed)
        return tried, generated

    return say


def compiled_for_auto(model, **options):
    return torchport.compile(model, (IDS,), target="auto", max_length=16, options=options)


def assert_generates(compiled, model):
    wanted = {"max_new_tokens": 6, "do_sample": False}
    assert torch.equal(compiled.generate(IDS, **wanted), model.generate(IDS, **wanted))


def test_engines_are_tried_on_a_step_with_its_cache(model, found):
    tried, _ = found([EAGER, row("host", 0.5)], {"host": 0.5})
    compiled = compiled_for_auto(model)
    [captured] = tried
    shapes = [tuple(leaf.shape) for leaf in captured.leaves]
    assert shapes[0] == (1, 1)
    assert shapes.count((1, 2, 16, 8)) == 2  # keys and values, a slot for each token
    assert (compiled.tries.chosen, compiled.coverage.target) == ("host", "host")
    assert [each.unit for each in compiled.tries.rows] == ["call", "token"]
    assert_generates(compiled, model)
    assert len(compiled.generation_programs) == 1


def test_who_is_faster_in_a_trial_and_not_in_generating_is_not_chosen(model, found, tmp_path):
    _, generated = found([EAGER, row("host", 0.5)], {"host": 1.2})
    compiled = compiled_for_auto(model)
    assert (compiled.tries.chosen, generated) == ("eager", ["host"])
    assert_generates(compiled, model)
    assert compiled.generation_programs == []  # transformers' own loop, with its own cache
    again = compiled_for_auto(model)
    assert (again.tries.chosen, again.tries.remembered, generated) == ("eager", True, ["host"])
    torchport.save(compiled, tmp_path / "model.pt2")
    assert_generates(torchport.load(tmp_path / "model.pt2"), model)


def test_the_next_engine_generates_if_the_first_is_slower(model, found):
    _, generated = found([EAGER, row("host", 0.5), row("openvino", 0.6)], {"host": 1.2, "openvino": 0.7})
    compiled = compiled_for_auto(model, cache=False)
    assert (compiled.tries.chosen, generated) == ("openvino", ["host", "openvino"])
    assert_generates(compiled, model)


def test_what_eager_torch_generates_has_the_same_limits(model, found):
    found([EAGER], {})
    compiled = compiled_for_auto(model)
    with pytest.raises(RuntimeRefusal, match="the prompt is empty"):
        compiled.generate(IDS[:, :0])
    with pytest.raises(RuntimeRefusal, match="compiled for 16 at most"):
        compiled.generate(IDS, max_new_tokens=14)
    assert compiled.generate(IDS, max_new_tokens=12, do_sample=False).shape == (1, 16)


def test_another_objective_asks_no_one_to_generate(model, found):
    _, generated = found([EAGER, row("host", 2.0, memory_bytes=1)], {})
    compiled = compiled_for_auto(model, objective="memory")
    assert (compiled.tries.chosen, generated) == ("host", [])


@pytest.mark.parametrize(
    "length", [pytest.param(16, marks=pytest.mark.conformance), 5]
)  # the second leaves no room for the usual number of timed tokens
def test_tokens_are_timed_in_turns_with_the_model(model, length):
    compiled = torchport.compile(model, (IDS,), target="host", max_length=length)
    timed = time_tokens(row("host", 0.5), compiled, model, IDS, length)
    assert timed.unit == "token"
    assert 0 < timed.fastest <= timed.seconds < 1
    assert 0 < timed.eager_fastest <= timed.eager_seconds < 1


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_a_step_of_a_decoder_is_captured(kind):
    made, auto = small_encoder_decoder(kind), targets.find("auto")
    captured = capture_step(made, IDS, 16, auto, auto.make_options(None), kind)
    assert captured is not None
    assert tuple(captured.leaves[0].shape) == (1, 1)
    assert any(leaf.dim() == 4 and leaf.shape[2] == 16 for leaf in captured.leaves)
