"""Which ops a target would take of a prompt and of a step, without building anything."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import torchport
from generation.models import small_causal, small_encoder_decoder, tiny_llama
from torchport.errors import CaptureError
from torchport.records import GenerationCoverage

IDS = torch.arange(1, 6)[None]
KEEP = {"keep_ops": ["aten.silu"]}


def test_it_agrees_with_what_is_compiled():
    model = tiny_llama(num_hidden_layers=1)
    found = torchport.explain_generation(model, target="ttnn", options=KEEP, max_length=64)
    assert GenerationCoverage.from_json(found.to_json()) == found
    compiled = torchport.compile(model, (IDS,), target="ttnn", options=KEEP, max_length=64)
    compiled.generate(IDS, max_new_tokens=2, do_sample=False)
    built = sorted(
        (each.coverage.ops_before, each.coverage.ops_remain) for each in compiled.generation_programs
    )
    explained = {name: (each.ops_before, each.ops_remain) for name, each in found.calls.items()}
    assert sorted(explained.values()) == built
    assert set(explained) == {"prompt", "step"}
    assert {row.op for each in found.calls.values() for row in each.stayed} == {"aten.silu.default"}
    assert not found.complete


def test_a_model_without_values():
    config = LlamaConfig(**{**tiny_llama(num_hidden_layers=1).config.to_dict(), "vocab_size": 97})
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    found = torchport.explain_generation(model, target="openvino", max_length=64)
    assert found.complete
    assert found.calls["prompt"].flops > found.calls["step"].flops > 0


@pytest.mark.parametrize("name", ["bloom", "opt"])
def test_positions_from_a_mask_or_with_an_offset_are_taken(name):
    found = torchport.explain_generation(
        small_causal(name, num_hidden_layers=1), target="openvino", max_length=32
    )
    assert found.complete


def test_an_encoder_and_its_decoder():
    model = small_encoder_decoder("bart", encoder_layers=1, decoder_layers=1)
    found = torchport.explain_generation(model, target="openvino", max_length=32)
    assert set(found.calls) == {"encoder", "step"}
    assert found.calls["encoder"].complete


def test_what_does_not_generate_is_refused():
    with pytest.raises(CaptureError, match="does not generate"):
        torchport.explain_generation(torch.nn.Linear(2, 2))
    with pytest.raises(CaptureError, match="too small to generate"):
        torchport.explain_generation(tiny_llama(), max_length=1)
    with torch.device("meta"):
        model = small_encoder_decoder("bart").to("meta")
    with pytest.raises(CaptureError, match="cannot be explained on the meta device"):
        torchport.explain_generation(model)


def test_an_encoder_may_take_its_input_by_its_name():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
    }
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = {
        "vocab_size": 32,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    }
    config = WhisperConfig(
        num_mel_bins=8, max_source_positions=10, max_target_positions=16, suppress_tokens=[],
        begin_suppress_tokens=[], **sizes, **heads, **tokens,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    prompt = {"input_features": torch.randn(1, 8, 20)}
    found = torchport.explain_generation(model, target="host", prompt=prompt, max_length=12)
    assert {"encoder", "step"} <= found.calls.keys()
