"""`model.forward = torch.compile(model.forward, backend="torchport")`, in transformers' own loop."""

from __future__ import annotations

import gc

import pytest
import torch
from transformers import StaticCache

import torchport
from generation.models import tiny_llama
from torchport.compiler import inference_graph

NEW = 4
LENGTHS = [7, 12, 3, 9, 20, 5, 31, 2, 14, 26]


@pytest.fixture
def programs(monkeypatch):
    """Counts the programs that are built."""
    built = []

    def build(source, target, options, build=inference_graph.build_program):
        built.append(source.name)
        return build(source, target, options)

    monkeypatch.setattr(inference_graph, "build_program", build)
    torch._dynamo.reset()
    yield built
    torch._dynamo.reset()


def _models():
    compiled, model = tiny_llama(num_hidden_layers=1), tiny_llama(num_hidden_layers=1)
    options = {"target": "host", "cache": False}
    compiled.forward = torch.compile(compiled.forward, backend="torchport", options=options)
    return compiled, model


def _assert_same(compiled, model, length, new=NEW, **arguments):
    ids = torch.randint(3, 97, (1, length))
    wanted = {"attention_mask": torch.ones_like(ids), "max_new_tokens": new, "do_sample": False}
    expected = model.generate(ids, **wanted)
    assert torch.equal(compiled.generate(ids, **wanted, **arguments), expected)


@pytest.mark.conformance
def test_two_programs_with_a_static_cache_for_all_prompts(programs):
    compiled, model = _models()
    cache = StaticCache(config=model.config, max_cache_len=64)
    for length in LENGTHS:
        cache.reset()
        _assert_same(compiled, model, length, past_key_values=cache)
    assert len(programs) == 2


@pytest.mark.parametrize("prompts", [3, pytest.param(len(LENGTHS), marks=pytest.mark.conformance)])
def test_two_programs_with_a_dynamic_cache_for_all_prompts(programs, prompts):
    compiled, model = _models()
    for _ in range(3):  # graphs of earlier tests are no longer counted below
        gc.collect()
    before = torchport.fallbacks()
    for length in LENGTHS[:prompts]:
        _assert_same(compiled, model, length)
    after = torchport.fallbacks()
    # The first prompt and the first step: programs for their sizes would be used once. torch 2.11 says of the
    # first step's sizes that they vary.
    firsts = after.fallbacks - before.fallbacks
    assert (len(programs), firsts) == ((2, 2) if torch.__version__ >= "2.13" else (3, 1))
    assert "generate" in after.last_reason
