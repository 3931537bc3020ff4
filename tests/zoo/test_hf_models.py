"""transformers models: built-in ones, from a folder, from the hub."""

import json
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchport.errors import ZooError
from torchport.zoo import load, names, network

TINY_BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "num_labels": 3,
}


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_a_built_in_model_runs_without_network(monkeypatch):
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    model = load("hf:tiny-llama", weights=False, batch=2)
    assert type(model.module).__name__ == "LlamaForCausalLM"
    assert model.args == ()
    assert model.kwargs["input_ids"].shape == (2, 128)
    assert model.kwargs["input_ids"].max() < 1000
    with torch.no_grad():
        output = model.module(**model.kwargs)
    assert output.logits.shape == (2, 128, 1000)
    assert output.past_key_values.get_seq_length() == 128  # the KV cache is part of the result


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # The published numbers; BERT's without the decoder, which is tied to the embeddings.
        ("bert-base-uncased", 109_514_298),
        ("bert-large-uncased", 335_174_458),
        ("gpt2", 124_439_808),
        ("google/vit-base-patch16-224", 86_567_656),
        ("meta-llama/Llama-3.2-1B", 1_235_814_400),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("meta-llama/Llama-3.1-405B", 405_853_388_800),
    ],
)
def test_a_built_in_configuration_has_the_published_number_of_parameters(name, count):
    model = load(f"hf:{name}", weights=False, device="meta")
    assert parameters(model.module) == count
    assert all(tensor.is_meta for tensor in model.kwargs.values())


def test_a_short_name_stands_for_a_long_one():
    model = load("hf:vit-base", weights=False, device="meta")
    assert model.kwargs["pixel_values"].shape == (1, 3, 224, 224)


def test_a_model_can_be_loaded_without_memory_under_fake_tensors():
    with FakeTensorMode():
        model = load("hf:meta-llama/Llama-3.1-8B", weights=False)
        logits = model.module(**model.kwargs).logits
    assert logits.shape == (1, 128, 128256)


def test_a_model_beyond_the_memory_is_refused_before_it_is_built():
    with pytest.raises(ZooError, match=r"its weights take 1,623 GB and this machine has .* device='meta'"):
        load("hf:meta-llama/Llama-3.1-405B", weights=False)


def test_a_folder_gives_the_class_it_names(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY_BERT))
    model = load(f"hf:{tmp_path}", weights=False)
    assert type(model.module).__name__ == "BertForSequenceClassification"
    assert model.kwargs["input_ids"].shape == (1, 64)  # limited by its number of positions
    assert model.module(**model.kwargs).logits.shape == (1, 3)


def test_a_folders_weights_are_loaded(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY_BERT))
    made = load(f"hf:{tmp_path}", weights=False).module
    with torch.no_grad():
        made.classifier.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    made.save_pretrained(tmp_path)
    assert load(f"hf:{tmp_path}").module.classifier.bias.tolist() == [1.0, 2.0, 3.0]


def test_a_folder_without_weights_is_not_given_random_ones(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY_BERT))
    with pytest.raises(ZooError, match=r"the weights of hf:.* cannot be fetched .*--no-weights"):
        load(f"hf:{tmp_path}")


def test_weights_that_a_checkpoint_lacks_are_not_made_up(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY_BERT))
    load(f"hf:{tmp_path}", weights=False).module.bert.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY_BERT))
    with pytest.raises(ZooError, match=r"fetched \(its checkpoint lacks 2 tensors: classifier\.bias, …\)"):
        load(f"hf:{tmp_path}")


def test_a_folder_without_configuration_is_refused(tmp_path):
    with pytest.raises(ZooError, match=r"it has no config\.json"):
        load(f"hf:{tmp_path}")
    with pytest.raises(ZooError, match="there is no such folder"):
        load(f"hf:{tmp_path}/nowhere")


def test_a_configuration_of_no_known_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    with pytest.raises(ZooError, match=r"its config\.json cannot be read"):
        load(f"hf:{tmp_path}", weights=False)


def test_weights_that_cannot_be_fetched_are_not_made_up(monkeypatch, tmp_path):
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    with pytest.raises(ZooError) as caught:
        load("hf:bert-base-uncased")
    assert str(caught.value).startswith("the weights of hf:bert-base-uncased cannot be fetched (")
    assert "--no-weights" in str(caught.value)


def test_a_configuration_that_cannot_be_fetched_lists_the_nearest_built_in(monkeypatch):
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    with pytest.raises(ZooError, match=r"hf:gtp2 cannot be found \(.*did you mean 'gpt2'"):
        load("hf:gtp2", weights=False)


def test_a_configuration_of_ours_has_no_weights():
    with pytest.raises(ZooError, match="the weights of hf:tiny-llama cannot be fetched"):
        load("hf:tiny-llama")


def test_the_built_in_names_are_listed():
    assert {"bert-base-uncased", "gpt2", "meta-llama/Llama-3.1-405B", "tiny-llama"} <= set(names("hf"))


def refuse(*_, **__):
    raise ConnectionRefusedError("no network")


@pytest.mark.usefixtures("forked_python")
def test_loading_says_nothing():
    """Libraries that transformers imports, such as torchao, log messages irrelevant to the caller."""
    code = "from torchport import zoo; zoo.load('hf-small:bert', weights=False)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
