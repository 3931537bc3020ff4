"""`model.forward = torch.compile(model.forward, backend="torchport")`, in the library's own loop."""

from __future__ import annotations

import pytest
import torch
from transformers import StaticCache

import torchport
from generation.models import tiny_llama
from torchport.targets.host import HostTarget

NEW = 6


@pytest.fixture
def builds(monkeypatch):
    """Counts how often the target builds an island."""
    counted = []

    def build(self, island, options, build=HostTarget.build):
        counted.append(island.name)
        return build(self, island, options)

    monkeypatch.setattr(HostTarget, "build", build)
    torch._dynamo.reset()
    yield counted
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


def test_a_static_cache_needs_no_further_builds(builds):
    compiled, model = _models()
    cache = StaticCache(config=model.config, max_cache_len=32)
    # The first prompt finds the cache without memory: a graph for that, one for other prompts, one for steps.
    for new in (2, 3):
        cache.reset()
        _assert_same(compiled, model, 7, new, past_key_values=cache)
    settled = len(builds)
    assert settled <= 3 * 2  # what is written in place stays on the host, between two islands
    for new in (12, 5):
        cache.reset()
        _assert_same(compiled, model, 7, new, past_key_values=cache)
    assert len(builds) == settled


def test_a_dynamic_cache_needs_no_further_builds(builds):
    compiled, model = _models()
    before = torchport.fallbacks().fallbacks
    for length in (5, 9, 3):
        _assert_same(compiled, model, length, new=8)
    settled = len(builds)
    # A graph for prompts and one for steps, each for its first size and for all others, of two islands each.
    assert settled <= 2 * 2 * 2
    for length in (17, 21):
        _assert_same(compiled, model, length, new=8)
    assert len(builds) == settled
    assert torchport.fallbacks().fallbacks == before
