"""A generative model in a file: its programs, one copy of the weights, with and without transformers."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from transformers import CompileConfig, MistralConfig, MistralForCausalLM

import torchport
from generation.models import padded_batch, small_causal, small_encoder_decoder, tiny_llama
from runtime.crafted_files import change_meta, change_package, island_calls
from torchport.errors import PackageError, RuntimeRefusal
from torchport.packaging import library_model

NEW = 8
GREEDY = {"max_new_tokens": NEW, "do_sample": False}


def _prompt(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (batch, length))


def _saved(model, path, target="host", batches=(), **options):
    compiled = torchport.compile(model, (_prompt(4),), target=target, max_length=48, **options)
    for batch in batches:
        compiled.build_generation(batch)
    torchport.save(compiled, path)
    return torchport.load(path)


@pytest.fixture(scope="module")
def model():
    return tiny_llama(num_hidden_layers=1)  # like the other models saved here


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "llama.pt2"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        _saved(model, path, batches=(1, 2))
    return path


@pytest.fixture(scope="module")
def loaded(file):
    return torchport.load(file)


def test_it_generates_what_the_model_does(loaded, model):
    for length in (1, 7, 37):
        ids = _prompt(length)
        mask = torch.ones_like(ids)
        expected = model.generate(ids, attention_mask=mask, **GREEDY)
        assert torch.equal(loaded.generate(ids, attention_mask=mask, **GREEDY), expected)
    assert loaded.fallbacks.fallbacks == 0
    assert loaded.fallbacks.calls > 3


def test_steps_without_the_library(loaded, model):
    ids = _prompt(35, 1)
    expected = model.generate(ids, **GREEDY)[0, 35:].tolist()
    logits, cache = loaded.prefill(ids)
    tokens = [int(logits.argmax())]
    while len(tokens) < NEW:
        logits = loaded.step(torch.tensor(tokens[-1:]), cache)
        tokens.append(int(logits.argmax()))
    assert tokens == expected
    assert cache.length == 35 + NEW - 1


def test_windows_are_kept_without_the_library(tmp_path):
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=5, max_position_embeddings=64,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    loaded = _saved(model, tmp_path / "mistral.pt2")
    ids = _prompt(20)
    logits, cache = loaded.prefill(ids)
    following = loaded.step(logits.argmax(-1), cache)
    with torch.no_grad():
        expected = model(torch.cat([ids, logits.argmax(-1)[:, None]], 1)).logits
    torch.testing.assert_close(logits, expected[:, -2])
    torch.testing.assert_close(following, expected[:, -1])


@pytest.mark.usefixtures("forked_python")
def test_where_the_library_is_not_installed(file, model):
    ids = _prompt(6)
    with torch.no_grad():
        expected = model(ids).logits[0, -1]
    script = f"""
        import sys, torch, torchport
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "transformers":
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Missing())
        loaded = torchport.load({str(file)!r})
        logits, cache = loaded.prefill(torch.tensor({ids.tolist()}))
        loaded.step(logits.argmax(-1), cache)
        print(logits[0].tolist())
        try:
            loaded.generate(torch.tensor({ids.tolist()}))
        except torchport.TorchportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    numbers, refusal = done.stdout.strip().splitlines()
    torch.testing.assert_close(torch.tensor(json.loads(numbers)), expected)
    assert "transformers, which is not installed" in refusal
    assert "prefill and step" in refusal


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        pytest.param("host", torch.float32, marks=pytest.mark.conformance),
        ("openvino", torch.float32),
        pytest.param("openvino", torch.bfloat16, marks=pytest.mark.conformance),
    ],
)
def test_the_weights_are_there_once(tmp_path, target, dtype):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 2000, "num_hidden_layers": 1}
    model = tiny_llama(**sizes).to(dtype)
    path = tmp_path / "llama.pt2"
    loaded = _saved(model, path, target, batches=(1, 2))
    size = sum(parameter.nbytes for parameter in model.parameters())
    assert len(loaded.generation_programs) == 2
    # Besides the weights there are two programs, each with position tables, and about as much for each
    # compiled form: kilobytes.
    assert size < path.stat().st_size < 1.05 * size + 2_000_000
    ids = torch.randint(3, 2000, (1, 9))
    given = loaded.generate(ids, return_dict_in_generate=True, output_logits=True, **GREEDY)
    with torch.no_grad():
        expected = model(given.sequences).logits[:, 8:-1]
    torch.testing.assert_close(
        torch.stack(given.logits, 1),
        expected.float(),
        rtol=0.05,
        atol=0.05 if dtype is torch.bfloat16 else 1e-4,
    )


def test_a_batch_that_it_was_called_with_is_in_the_file(tmp_path):
    model = tiny_llama(num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=48)
    ids, mask = padded_batch(9, 97)
    compiled.generate(ids, attention_mask=mask, **GREEDY)
    torchport.save(compiled, tmp_path / "three.pt2")
    loaded = torchport.load(tmp_path / "three.pt2")
    expected = model.generate(ids, attention_mask=mask, **GREEDY)
    assert torch.equal(loaded.generate(ids, attention_mask=mask, **GREEDY), expected)
    with pytest.raises(RuntimeRefusal, match=r"the inputs have the shapes \[\[1, 9\]"):
        loaded.generate(ids[:1], **GREEDY)


def test_a_model_with_an_encoder(tmp_path):
    model = small_encoder_decoder("t5", num_layers=1, num_decoder_layers=1)
    loaded = _saved(model, tmp_path / "t5.pt2")
    ids = _prompt(11)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    with pytest.raises(RuntimeRefusal, match="only transformers' generate can call it: it has an encoder"):
        loaded.prefill(ids)


def test_a_model_with_an_encoder_in_half_precision(tmp_path):
    model = small_encoder_decoder("bart", encoder_layers=1, decoder_layers=1).to(torch.bfloat16)
    model.set_attn_implementation("eager")  # its masks have the model's dtype
    loaded = _saved(model, tmp_path / "bart.pt2")
    ids = _prompt(5)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))


def test_the_forward_is_there_if_it_was_called(tmp_path):
    model, ids = tiny_llama(num_hidden_layers=1), _prompt(4)
    compiled = torchport.compile(model, (ids,), {"use_cache": False}, target="host", max_length=48)
    with torch.no_grad():
        expected = compiled(ids, use_cache=False).logits
    compiled.generate(ids, **GREEDY)
    torchport.save(compiled, tmp_path / "both.pt2")
    loaded = torchport.load(tmp_path / "both.pt2")
    with torch.no_grad():
        assert torch.equal(loaded(ids, use_cache=False).logits, expected)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))


def test_what_it_cannot_do_is_said(loaded):
    with pytest.raises(RuntimeRefusal, match="programs for generate, but not the model's forward"):
        loaded(_prompt(4))
    with pytest.raises(RuntimeRefusal, match=r"inputs_embeds.*a model loaded from a file"):
        loaded.generate(inputs_embeds=torch.randn(1, 4, 32), **GREEDY)
    with pytest.raises(RuntimeRefusal, match="add up to 101, and the model was compiled for 48"):
        loaded.generate(_prompt(99), max_new_tokens=2)
    with pytest.raises(RuntimeRefusal, match="49 tokens, and the model was compiled for 48"):
        loaded.prefill(_prompt(49))
    with pytest.raises(RuntimeRefusal, match="expected a non-empty tensor of tokens"):
        loaded.prefill(_prompt(0))
    with pytest.raises(RuntimeRefusal, match="the prompt is empty"):
        loaded.generate(_prompt(0), **GREEDY)
    with pytest.raises(RuntimeRefusal, match=r"a non-empty tensor .* got a list"):
        loaded.prefill([[1, 2]])
    with pytest.raises(RuntimeRefusal, match="a token is not in the model's vocabulary"):
        loaded.prefill(_prompt(3) + 10_000)
    _, cache = loaded.prefill(_prompt(3))
    with pytest.raises(RuntimeRefusal, match=r"a non-empty tensor .* got a list"):
        loaded.step([3], cache)
    with pytest.raises(RuntimeRefusal, match="not a cache of this model for 2 sequences"):
        loaded.step(torch.tensor([3, 4]), cache)
    with pytest.raises(RuntimeRefusal, match="a dict is not a cache"):
        loaded.step(torch.tensor([3]), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["generation"].update(model_class="os:system"), "os.system, which is not known"),
        (
            lambda data: data["generation"].update(
                model_class="transformers.models.llama.modeling_llama:LlamaModel"
            ),
            "LlamaModel, which is not known",
        ),
        (
            lambda data: data["generation"].update(attention="kernels-community/mine"),
            "asks for the attention",
        ),
        (lambda data: data["generation"]["config"].update(backbone="timm/mine"), "may lead to other files"),
        (
            lambda data: data["generation"]["config"].update(vision={"model_args": {"checkpoint_path": "x"}}),
            "'model_args', which may lead to other files",
        ),
        (
            lambda data: data["generation"]["config"].update(vision={"architecture": "hf-hub:mine/model"}),
            "the architecture 'hf-hub:mine/model'",
        ),
        (lambda data: data["generation"]["config"].update(hidden_size="wide"), "does not accept its config"),
        (lambda data: data["generation"]["generation_config"].update(eos_token_id="x"), "eos_token_id 'x'"),
        (lambda data: data["generation"]["generation_config"].update(pad_token_id=[2**70]), "pad_token_id"),
        (lambda data: data["generation"]["config"].update(num_hidden_layers=1 << 40), "num_hidden_layers"),
        (
            lambda data: data["generation"]["generation_config"].update(dola_layers="high"),
            "'dola_layers', for which the library loads code",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(num_beams=1 << 31),
            "the num_beams '214",
        ),
        (lambda data: data["generation"]["generation_config"].update(num_beams="4"), "the num_beams '4'"),
        (
            lambda data: data["generation"]["generation_config"].update(eos_token_id=[]),
            r"crafted.pt2: its generation_config has the eos_token_id '\[\]', which is not a token or a list",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(dola_layers=[], top_k="x"),
            "crafted.pt2: its generation_config has the top_k 'x', which is not a whole number",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(repetition_penalty=0),
            "the repetition_penalty '0', which is not 1, or a floating-point number above 0",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(prefill_chunk_size=0),
            "the prefill_chunk_size '0', which is not a whole number from 1",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(encoder_no_repeat_ngram_size=2**40),
            "the encoder_no_repeat_ngram_size '1099511627776', which is not a whole number up to 65,536",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(sequence_bias={"(1,)": 2.0}),
            "the sequence_bias .* which is not a non-empty list",
        ),
        (
            lambda data: data["generation"]["generation_config"].update(validate=1),
            "has 'validate', which is not a setting",
        ),
        (lambda data: data["generation"].update(calls=[[0, 7]]), "programs that it does not contain"),
        (lambda data: data["generation"].update(calls=[]), "programs that it does not contain"),
        (lambda data: data["generation"]["form"].update(dtype="load"), "dtype"),
        (lambda data: data["generation"]["form"].update(max_length=-3), "impossible size"),
        (lambda data: data["generation"]["form"].update(layers=[[2**40, 8, 8]]), "impossible size"),
        (
            lambda data: next(iter(data["generation"]["form"]["masks"].values())).update(dtype="int64"),
            "impossible dtype",
        ),
        (lambda data: _parts(data).__setitem__(0, ["model/none", 0, 8]), "not have the size of its parts"),
    ],
)
def test_made_up_files_are_refused(file, tmp_path, change, message):
    path = change_package(file, tmp_path / "crafted.pt2", change)
    with pytest.raises((PackageError, RuntimeRefusal), match=message):
        torchport.load(path).generate(_prompt(3), **GREEDY)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "sequence_bias": {(38,): -10.0, (1, 2): 3.0},
            "length_penalty": float("inf"),
            "compile_config": CompileConfig(),
            "repetition_penalty": 1,
            "early_stopping": "never",
        },
        {"sequence_bias": {(38,): float("-inf")}},
    ],
    ids=["finite biases and others", "an infinite bias"],
)
def test_settings_of_a_model_come_back_from_its_file(tmp_path, settings):
    model = tiny_llama(num_hidden_layers=1)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    loaded = _saved(model, tmp_path / "llama.pt2")
    ids = _prompt(3)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))


@pytest.mark.parametrize(
    ("name", "value", "without"),
    [("use_cache", False, True), ("stop_strings", ["x"], None), ("output_attentions", True, False)],
)
def test_settings_with_which_nothing_is_compiled_do_not_hinder_saving(tmp_path, name, value, without):
    model = tiny_llama(num_hidden_layers=1)
    setattr(model.generation_config, name, value)
    loaded = _saved(model, tmp_path / "llama.pt2")
    ids, plainly = _prompt(3), {**GREEDY, name: without}
    assert torch.equal(loaded.generate(ids, **plainly), model.generate(ids, **plainly))


def test_settings_that_are_no_data_are_refused(tmp_path):
    model = tiny_llama(num_hidden_layers=1)
    model.generation_config.mine = object()
    with pytest.raises(PackageError, match="model's generation_config cannot be written as JSON"):
        _saved(model, tmp_path / "llama.pt2")
    assert not (tmp_path / "llama.pt2").exists()


def test_the_labels_of_a_classifier_do_not_take_the_memory(file, tmp_path):
    change = lambda data: data["generation"]["config"].update(num_labels=10**12)  # noqa: E731
    model = torchport.load(change_package(file, tmp_path / "crafted.pt2", change))
    prompt = _prompt(3)
    expected = torchport.load(file).generate(prompt, **GREEDY)
    assert torch.equal(model.generate(prompt, **GREEDY), expected)


def test_a_configuration_of_many_layers_does_not_take_the_memory(file, tmp_path, monkeypatch):
    monkeypatch.setattr(library_model, "_MOST_MODULES", 64)
    change = lambda data: data["generation"]["config"].update(num_hidden_layers=10**4)  # noqa: E731
    model = torchport.load(change_package(file, tmp_path / "crafted.pt2", change))
    with pytest.raises(PackageError, match=r"asks for more than .* modules"):
        model.generate(_prompt(3), **GREEDY)


def _parts(data):
    return next(entry for entry in data["tensors"].values() if entry["parts"])["parts"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "model/none", "which has no bytes of its own"),
        (1, -8, "a part that is out of bounds"),
        (1, 1 << 40, "a part that is out of bounds"),
        (2, 1 << 40, "does not have the size of its parts"),
        (1, 0, "damaged"),
    ],
)
def test_parts_of_payloads_that_are_not_there(file, tmp_path, place, value, message):
    def change(data):
        shared = next(part for part in _parts(data) if part[0] and part[1])
        shared[place] = value
        for call in island_calls(data):  # under another name, so that no loaded island is reused
            change_meta(call, lambda meta: meta.update(name="crafted"))

    with pytest.raises(PackageError, match=message):
        torchport.load(change_package(file, tmp_path / "crafted.pt2", change))


def test_code_that_a_configuration_names_is_not_looked_for(file, tmp_path, model):
    def change(data):
        data["generation"]["config"].update(
            auto_map={"AutoModel": "mine--code"}, _attn_implementation="kernels-community/mine"
        )

    loaded = torchport.load(change_package(file, tmp_path / "crafted.pt2", change))
    ids = _prompt(5)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))


def test_alibi_models_too(tmp_path):
    model = small_causal("bloom", n_layer=1)
    loaded = _saved(model, tmp_path / "bloom.pt2")
    ids = _prompt(11)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    logits, _ = loaded.prefill(ids)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(ids).logits[:, -1], rtol=1e-4, atol=1e-4)
