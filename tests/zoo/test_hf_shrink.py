"""Configurations reduced by general rules."""

import pytest
import torch
from transformers import BertConfig, CLIPConfig, LlamaConfig, PretrainedConfig, Qwen2VLTextConfig, SwinConfig

from torchport.zoo.hf_shrink import Shrink, shrink_config
from torchport.zoo.hf_widths import shrink_widths

ALL = Shrink(depths=True, head=32, images=True)


def test_depth_width_and_vocabulary_come_down_together():
    small = shrink_config(BertConfig(), ALL)
    assert small.num_hidden_layers == 2
    assert (small.hidden_size, small.num_attention_heads) == (128, 4)
    assert small.intermediate_size == 256
    assert small.vocab_size == 500


def test_smaller_values_are_kept():
    small = shrink_config(BertConfig(num_hidden_layers=1, hidden_size=16, vocab_size=7), ALL)
    assert (small.num_hidden_layers, small.hidden_size, small.vocab_size) == (1, 16, 7)


def test_nested_configurations_are_reduced_too():
    small = shrink_config(CLIPConfig(), ALL)
    assert small.text_config.num_hidden_layers == small.vision_config.num_hidden_layers == 2
    assert small.vision_config.image_size == 4 * 32  # four patches of 32


def test_special_tokens_move_into_the_vocabulary_each_to_its_own_place():
    small = shrink_config(LlamaConfig(vocab_size=128256, bos_token_id=128000, eos_token_id=128001), ALL)
    assert {small.bos_token_id, small.eos_token_id} == {498, 499}


def test_stages_keep_their_number_and_lose_depth():
    small = shrink_config(SwinConfig(depths=[2, 2, 18, 2]), Shrink(depths=True, head=0, images=True))
    assert small.depths == [2, 2, 2, 2]
    assert small.num_heads == [3, 6, 12, 24]


def test_a_head_of_zero_keeps_the_widths():
    small = shrink_config(BertConfig(), Shrink(depths=True, head=0, images=True))
    assert (small.num_hidden_layers, small.hidden_size) == (2, 768)


def test_rotary_sections_shrink_with_their_head():
    config = Qwen2VLTextConfig(
        hidden_size=1024,
        num_attention_heads=8,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 24, 24]},
    )
    assert shrink_config(config, ALL).rope_parameters["mrope_section"] == [4, 6, 6]


@pytest.mark.parametrize(("before", "after"), [(32, 4), (8, 2), (1, 1)])
def test_grouped_heads_stay_grouped(before, after):
    values = {"num_attention_heads": 32, "num_key_value_heads": before}
    shrink_widths(values, 32)
    assert values == {"num_attention_heads": 4, "num_key_value_heads": after}


def test_state_space_heads_fill_the_inner_width():
    values = {"hidden_size": 4096, "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64}
    shrink_widths(values, 32)
    # Twice the hidden size of 128, in heads of 32.
    assert values == {"hidden_size": 128, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 32}


def test_the_original_is_left_alone():
    config = BertConfig()
    shrink_config(config, ALL)
    assert isinstance(config, PretrainedConfig)
    assert config.hidden_size == 768
    assert config.dtype in (None, torch.float32)
