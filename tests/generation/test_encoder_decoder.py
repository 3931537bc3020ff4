"""Compiled encoder-decoder models generate as the models themselves do."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)
from transformers.modeling_outputs import BaseModelOutput

import torchport
from torchport.errors import RuntimeRefusal


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
    }
    made = BartForConditionalGeneration(BartConfig(**sizes)).eval()
    made.generation_config.eos_token_id = made.generation_config.forced_eos_token_id = None
    made.generation_config.pad_token_id = 0
    return made


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield torchport.compile(model, (torch.ones(1, 4, dtype=torch.long),), target="host", max_length=48)


def _assert_same(compiled, model, ids, **arguments):
    arguments = {"max_new_tokens": 12, "do_sample": False, **arguments}
    assert torch.equal(compiled.generate(ids, **arguments), model.generate(ids, **arguments))


def test_prompts_of_any_length_need_two_builds(compiled, model):
    for length in (3, 17, 48, 1):
        _assert_same(compiled, model, torch.randint(3, 97, (1, length)))
    assert len(compiled.generation_programs) == 2
    assert compiled.fallbacks.fallbacks == 0


def test_a_padded_batch_and_beams(compiled, model):
    ids = torch.randint(3, 97, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, 4:] = mask[2, 8:] = 0
    _assert_same(compiled, model, ids, attention_mask=mask)
    _assert_same(compiled, model, ids[:1], num_beams=3)


def test_a_beginning_that_the_decoder_is_given(compiled, model):
    _assert_same(
        compiled, model, torch.randint(3, 97, (1, 5)), decoder_input_ids=torch.randint(3, 97, (1, 4))
    )


def test_another_result_of_the_encoder_is_seen_by_eager_torch_first(compiled, model):
    before = compiled.fallbacks.fallbacks
    arguments = {"max_new_tokens": 6, "do_sample": False}
    seen = torch.randn(1, 48, 32)
    expected = model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=seen), **arguments)
    given = compiled.generate(encoder_outputs=BaseModelOutput(last_hidden_state=seen), **arguments)
    assert torch.equal(given, expected)
    assert compiled.fallbacks.fallbacks == before + 1


def test_a_prompt_beyond_the_limit(compiled):
    with pytest.raises(RuntimeRefusal, match="the prompt has 49 tokens, and the encoder was compiled for 48"):
        compiled.generate(torch.ones(1, 49, dtype=torch.long), max_new_tokens=2)


def test_nobody_sees_the_encoders_result_of_a_call_that_was_refused(compiled, model):
    with pytest.raises(RuntimeRefusal, match="compiled for 48"):
        compiled.generate(torch.randint(3, 97, (1, 7)), max_new_tokens=100)
    arguments = {
        "max_new_tokens": 2,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    torch.manual_seed(0)
    seen = torch.randn(1, 7, 32)
    expected = model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=seen), **arguments)
    given = compiled.generate(encoder_outputs=BaseModelOutput(last_hidden_state=seen), **arguments)
    torch.testing.assert_close(given.logits, expected.logits)


def test_an_encoder_and_a_decoder_of_other_models():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    sight = ViTConfig(image_size=16, patch_size=8, **sizes)
    text = GPT2Config(vocab_size=97, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(sight, text)
    torch.manual_seed(0)
    model = VisionEncoderDecoderModel(config).eval()
    model.generation_config.decoder_start_token_id, model.generation_config.pad_token_id = 1, 0
    model.generation_config.eos_token_id = None
    pixels = torch.randn(1, 3, 16, 16)
    compiled = torchport.compile(model, (pixels,), target="host", max_length=32)
    _assert_same(compiled, model, pixels)
    assert compiled.fallbacks.fallbacks == 0


def test_a_decoder_that_eager_torch_runs_sees_no_padding(compiled, model):
    """With arguments that only the decoder gets, the encoder stays compiled, and its output padded."""
    before = compiled.fallbacks.fallbacks
    ids = torch.randint(3, 97, (1, 7))
    asked = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    unusual = {"cross_attn_head_mask": torch.ones(1, 4)}
    loop = compiled.generation._loop()
    prepare = loop.prepare_inputs_for_generation
    loop.prepare_inputs_for_generation = lambda *args, **given: {**prepare(*args, **given), **unusual}
    given, expected = loop.generate(ids, **asked), model.generate(ids, **asked)
    torch.testing.assert_close(given.logits, expected.logits)
    assert compiled.fallbacks.fallbacks == before + 3


def test_guidance_gives_the_model_its_arguments_by_their_place(compiled, model):
    _assert_same(compiled, model, torch.randint(3, 97, (1, 6)), guidance_scale=1.5, max_new_tokens=4)


def test_masks_of_other_lengths_than_the_prompt(compiled):
    for columns in (5, 9):
        mask = torch.ones(1, columns, dtype=torch.long)
        with pytest.raises(RuntimeRefusal, match=f"has {columns} columns, but the prompt has 7 tokens"):
            compiled.generate(torch.randint(3, 97, (1, 7)), attention_mask=mask, max_new_tokens=2)


def test_a_sequence_whose_tokens_are_all_hidden_is_refused(compiled):
    mask = torch.tensor([[1] * 7, [0] * 7])
    with pytest.raises(RuntimeRefusal, match="the prompt of sequence 1 is empty"):
        compiled.generate(torch.randint(3, 97, (2, 7)), attention_mask=mask, max_new_tokens=2)
