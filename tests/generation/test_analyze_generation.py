"""The cost of generating, compared with arithmetic by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

import torchport
from generation.models import small_encoder_decoder, tiny_llama
from torchport.errors import CaptureError
from torchport.records import GenerationCost

# `tiny_llama` has 2 layers, 4 query heads and 2 key-value heads of width 8.
_PER_TOKEN = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes
_PRODUCTS = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48) + 32 * 97
_ATTENTION = 2 * 2 * 2 * 4 * 8  # layers, two products of two operations each, heads, width


def test_a_step_and_its_cache():
    found = torchport.analyze_generation(tiny_llama(), length=100, batch=3)
    assert found.cache_bytes == 3 * 100 * _PER_TOKEN
    assert found.cache_bytes_per_token == _PER_TOKEN
    assert found.cache_layers == 2
    expected = 3 * (2 * _PRODUCTS + 101 * _ATTENTION)
    assert found.step.flops == pytest.approx(expected, rel=0.01)  # and the rotary angles
    assert found.step.bytes_read > found.cache_bytes
    longer = torchport.analyze_generation(tiny_llama(), length=200, batch=3)
    assert longer.step.flops - found.step.flops == 3 * 100 * _ATTENTION
    assert GenerationCost.from_json(found.to_json()) == found


def test_a_prompt():
    found = torchport.analyze_generation(tiny_llama(), length=50)
    blocks = _PRODUCTS - 32 * 97
    expected = 50 * (2 * blocks + 50 * _ATTENTION) + 2 * 32 * 97  # logits of the last token only
    assert found.prefill.flops == pytest.approx(expected, rel=0.01)


def test_windows_that_are_full_grow_no_more():
    config = MistralConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=8, max_position_embeddings=64,
    )  # fmt: skip
    with torch.device("meta"):
        model = MistralForCausalLM(config)
    found = torchport.analyze_generation(model, length=40)
    assert found.cache_bytes_per_token == 0
    assert found.cache_bytes == 2 * 2 * 2 * 16 * 4 * 7  # a window of 8 caches all but the new token


def test_a_device_and_its_roofline():
    found = torchport.analyze_generation(tiny_llama(), length=10, peak_flops=1e12, bandwidth=1e9)
    for phase in (found.prefill, found.step):
        moved = (phase.bytes_read + phase.bytes_written) / 1e9
        assert phase.roofline.seconds == pytest.approx(moved, rel=0.3)  # so small a model is memory-bound


def test_models_of_other_kinds():
    with pytest.raises(CaptureError, match="does not generate"):
        torchport.analyze_generation(torch.nn.ReLU())
    with pytest.raises(CaptureError, match="has an encoder"):
        torchport.analyze_generation(small_encoder_decoder("t5"))
    with pytest.raises(CaptureError, match="length and batch must be at least 1"):
        torchport.analyze_generation(tiny_llama(), length=0)
