"""Greedy tokens of many architectures equal eager torch's, 64 of 64, and so do the logits of every step."""

from __future__ import annotations

import pytest
import torch

import torchport
from conformance.architectures import marked
from generation.models import padded_batch, small_causal, small_encoder_decoder

CAUSAL = """
    gpt2 llama mistral opt bloom gpt_neo gpt_neox gptj falcon phi phi3 gemma gemma2 gemma3_text qwen2 qwen3
    qwen2_moe mixtral stablelm starcoder2 olmo olmo2 cohere granite codegen xglm biogpt persimmon glm
    gpt_bigcode smollm3 deepseek_v3 helium ctrl exaone4
""".split()
ENCODER_DECODER = ["bart", "t5", "mbart", "pegasus", "marian", "mt5"]
# With recurrent states besides keys and values. Their programs for pieces of prompts take minutes to build.
HYBRID = ["qwen3_next", "qwen3_5_text", "falcon_h1", "nemotron_h", "olmo_hybrid"]
# A token's experts depend on values, so the products of experts stay on the host.
MIXTURES = {"qwen2_moe", "mixtral", "deepseek_v3"}
NEW = 64


def _assert_same(compiled, model, ids, mask):
    asked = {
        "attention_mask": mask,
        "max_new_tokens": NEW,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    expected, given = model.generate(ids, **asked), compiled.generate(ids, **asked)
    assert torch.equal(given.sequences, expected.sequences)
    assert len(given.logits) == NEW
    for ours, theirs in zip(given.logits, expected.logits, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", marked("causal", CAUSAL, 0))
def test_causal_models(name):
    model = small_causal(name.partition(":")[2])
    compiled = torchport.compile(model, (torch.ones(1, 4, dtype=torch.long),), max_length=128)
    ids = torch.randint(3, 400, (1, 37))
    _assert_same(compiled, model, ids, torch.ones_like(ids))
    _assert_same(compiled, model, *padded_batch(12, 400))


@pytest.mark.conformance
@pytest.mark.parametrize("name", HYBRID)
def test_models_with_recurrent_states(name):
    model = small_causal(name)
    compiled = torchport.compile(model, (torch.ones(1, 4, dtype=torch.long),), max_length=128)
    ids = torch.randint(3, 400, (1, 37))
    _assert_same(compiled, model, ids, torch.ones_like(ids))
    _assert_same(compiled, model, *padded_batch(12, 400))
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize("name", marked("encoder-decoder", ENCODER_DECODER, 0))
def test_models_with_an_encoder(name):
    model = small_encoder_decoder(name.partition(":")[2])
    compiled = torchport.compile(model, (torch.ones(1, 4, dtype=torch.long),), max_length=96)
    ids = torch.randint(3, 400, (1, 37))
    _assert_same(compiled, model, ids, torch.ones_like(ids))
    ids, mask = padded_batch(12, 400)
    _assert_same(compiled, model, ids.flip(1), mask.flip(1))


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name in CAUSAL if name not in MIXTURES])
def test_openvino_takes_every_op(name, dtype):
    found = torchport.explain_generation(small_causal(name).to(dtype), target="openvino", max_length=64)
    assert {call: coverage.stayed for call, coverage in found.calls.items() if not coverage.complete} == {}
