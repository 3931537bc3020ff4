"""Inputs made from a signature and a configuration."""

import pytest
import torch
from torch import nn
from transformers import BertConfig, ViTConfig, WhisperConfig

from torchport.errors import ZooError
from torchport.zoo.hf_input_makers import InputSizes
from torchport.zoo.hf_inputs import make_inputs

SIZES = InputSizes(batch=2, length=8)


class Text(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, vocabulary=10):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 4)

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids=None, attention_mask=None):
        return self.embedding(input_ids)


def test_tokens_are_in_the_vocabulary_and_none_is_special():
    config = BertConfig(vocab_size=10, pad_token_id=0, bos_token_id=1, eos_token_id=[2, 3])
    tokens = make_inputs(Text(), config, InputSizes(batch=4, length=100))["input_ids"]
    assert tokens.shape == (4, 100)
    assert tokens.dtype == torch.int64
    assert set(tokens.unique().tolist()) == {4, 5, 6, 7, 8, 9}


def test_tokens_are_no_longer_than_the_positions():
    assert make_inputs(Text(), BertConfig(max_position_embeddings=5), SIZES)["input_ids"].shape == (2, 5)


def test_images_have_the_size_and_channels_of_the_configuration():
    class Vision(nn.Module):
        main_input_name = "pixel_values"

        def forward(self, pixel_values=None):
            return pixel_values

    inputs = make_inputs(Vision(), ViTConfig(image_size=(32, 48), num_channels=1), SIZES)
    assert inputs["pixel_values"].shape == (2, 1, 32, 48)


def test_patches_come_with_their_places_and_a_mask():
    class Patches(nn.Module):
        main_input_name = "pixel_values"

        def forward(self, pixel_values=None, pixel_attention_mask=None, spatial_shapes=None):
            rows, columns = spatial_shapes[0].tolist()
            assert pixel_values.shape == (2, rows * columns, 3 * 8 * 8)
            assert pixel_attention_mask.shape == (2, rows * columns)
            return pixel_values

    inputs = make_inputs(Patches(), ViTConfig(patch_size=8), SIZES, try_out=True)
    assert inputs["spatial_shapes"].shape == (2, 2)


def test_of_two_possible_forms_the_one_that_runs_is_taken():
    class Speech(nn.Module):
        main_input_name = "input_features"

        def forward(self, input_features):
            return input_features @ torch.ones(80, 3)

    config = WhisperConfig(num_mel_bins=80, max_source_positions=20, is_encoder_decoder=False)
    assert make_inputs(Speech(), config, SIZES)["input_features"].shape == (2, 40, 80)


def test_optional_inputs_that_the_model_needs_are_found():
    class Dual(Text):
        def forward(self, input_ids=None, pixel_values=None):
            return self.embedding(input_ids).sum() + pixel_values.sum()

    inputs = make_inputs(Dual(), BertConfig(vocab_size=10), SIZES)
    assert list(inputs) == ["input_ids", "pixel_values"]


def test_the_same_inputs_come_each_time_and_torchs_generator_is_left_alone():
    module = Text()
    before = torch.get_rng_state()
    first, second = (make_inputs(module, BertConfig(vocab_size=10), SIZES)["input_ids"] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_input_that_nobody_can_make_up_is_named():
    class Odd(Text):
        def forward(self, input_ids, molecule):
            return molecule

    with pytest.raises(ZooError, match=r"Odd needs an input 'molecule' that cannot be generated: .*--inputs"):
        make_inputs(Odd(), BertConfig(vocab_size=10), SIZES)


def test_a_model_that_takes_nothing_says_why():
    class Broken(Text):
        def forward(self, input_ids=None):
            raise IndexError("out of luck")

    with pytest.raises(
        ZooError, match=r"accepts none of the inputs .* it raised IndexError: out of luck"
    ) as caught:
        make_inputs(Broken(), BertConfig(vocab_size=10), SIZES, try_out=True)
    assert isinstance(caught.value.__cause__, IndexError)
