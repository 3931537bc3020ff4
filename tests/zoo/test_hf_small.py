"""Small versions of transformers architectures."""

import pytest
import torch

from torchport.errors import ZooError
from torchport.zoo import load, load_small_hf, names, small_hf_names


@pytest.mark.parametrize(
    ("model_type", "inputs"),
    [
        ("bert", {"input_ids": (1, 16)}),
        ("t5", {"input_ids": (1, 16), "decoder_input_ids": (1, 16)}),
        ("vit", {"pixel_values": (1, 3, 64, 64)}),
        ("clip", {"input_ids": (1, 16), "pixel_values": (1, 3, 128, 128)}),
        ("whisper", {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 16)}),
        ("wav2vec2", {"input_values": (1, 4000)}),
        ("deepseek_v3", {"input_ids": (1, 16)}),
    ],
)
def test_an_architecture_gets_the_inputs_it_takes(model_type, inputs):
    model = load(f"hf-small:{model_type}")
    assert {name: tuple(tensor.shape) for name, tensor in model.kwargs.items()} == inputs
    assert sum(parameter.numel() for parameter in model.module.parameters()) < 5_000_000
    with torch.no_grad():
        output = model.module(**model.kwargs)
    assert any(
        tensor.std() > 0
        for tensor in output.values()
        if isinstance(tensor, torch.Tensor) and tensor.numel() > 1
    )


def test_a_mixed_model_keeps_one_layer_of_each_kind():
    config = load_small_hf("qwen3_next").module.config
    assert sorted(config.layer_types) == ["full_attention", "linear_attention"]
    assert config.num_hidden_layers == 2


def test_the_same_type_gives_the_same_model():
    first, second = load_small_hf("gpt2"), load_small_hf("gpt2")
    assert torch.equal(first.module.wte.weight, second.module.wte.weight)
    assert torch.equal(first.kwargs["input_ids"], second.kwargs["input_ids"])


def test_an_unknown_type_lists_the_nearest():
    with pytest.raises(ZooError, match="transformers has no model type 'brt': did you mean 'bert'"):
        load_small_hf("brt")


def test_an_architecture_that_general_rules_do_not_cover_is_refused_with_its_reason():
    with pytest.raises(
        ZooError, match="hf-small:chameleon: it does not build and run in a small configuration"
    ):
        load_small_hf("chameleon")


def test_all_types_are_listed():
    assert names("hf-small") == small_hf_names()
    assert len(small_hf_names()) > 150
