"""Models that keep recurrent states besides keys and values generate as eager torch does."""

import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

import torchport
from generation.models import padded_batch
from runtime.crafted_files import change_package
from torchport.errors import CompileError, PackageError, RuntimeRefusal
from torchport.generation import recurrent_states
from torchport.generation.model_inputs import MaskForm
from torchport.generation.pieces import SlotNumbers
from torchport.generation.recurrent_states import Layout
from torchport.generation.slot_cache import SlotCache
from torchport.records import StateForm

ASKED = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True, "pad_token_id": 0}


@pytest.fixture(scope="module")
def model():
    """Return a model whose first and last layers are short convolutions."""
    torch.manual_seed(0)
    config = Lfm2Config(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    return Lfm2ForCausalLM(config).eval()


@pytest.fixture(scope="module", params=["host", "openvino"])
def compiled(request, model):
    options = {"cache": False}
    return torchport.compile(model, (prompt(4),), target=request.param, max_length=160, options=options)


@pytest.fixture(scope="module")
def file(compiled, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "net.pt2"
    torchport.save(compiled, path)
    return path


def prompt(length, batch=1):
    return torch.randint(3, 97, (batch, length))


def assert_same(given, expected):
    assert torch.equal(given.sequences, expected.sequences)
    for ours, theirs in zip(given.logits, expected.logits, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_prompts_of_all_lengths_need_two_programs(compiled, model):
    asked = {**ASKED, "max_new_tokens": 6}
    compiled.generate(prompt(40), **asked)
    built = len(compiled.generation_programs)  # also for the numbers of sequences of other tests
    for length in (1, 2, 31, 32, 33, 70):
        ids = prompt(length)
        assert_same(compiled.generate(ids, **asked), model.generate(ids, **asked))
    assert len(compiled.generation_programs) == built
    assert compiled.fallbacks.fallbacks == 0


def test_states_take_in_no_padding(compiled, model):
    ids, mask = padded_batch(40, 97)
    ids, mask = (torch.cat([each, each[1:2]]) for each in (ids, mask))  # as many as the beams below have
    asked = {**ASKED, "attention_mask": mask, "max_new_tokens": 6}
    assert_same(compiled.generate(ids, **asked), model.generate(ids, **asked))
    assert compiled.fallbacks.fallbacks == 0


def test_eager_torch_generates_where_no_mask_shows_the_padding(model, monkeypatch):
    monkeypatch.setattr(MaskForm, "marks_tokens", False)
    compiled = torchport.compile(model, (prompt(4),), target="host", max_length=160)
    ids, mask = padded_batch(6, 97)
    asked = {**ASKED, "attention_mask": mask, "max_new_tokens": 3}
    assert_same(compiled.generate(ids, **asked), model.generate(ids, **asked))
    assert "padding" in compiled.fallbacks.last_reason
    first = compiled.generate(ids, **{**ASKED, "max_new_tokens": 1}, attention_mask=torch.ones_like(ids))
    more = torch.cat([first.sequences, ids], 1)
    mask = torch.cat([torch.ones_like(first.sequences), mask], 1)
    with pytest.raises(RuntimeRefusal, match="mask hides"):
        compiled.generate(more, past_key_values=first.past_key_values, attention_mask=mask)


def test_pieces_of_one_size_are_not_padded(model, monkeypatch):
    """As for models that are compiled for one number of tokens, whose states padding would change."""
    monkeypatch.setattr("torchport.targets.host.target.HostTarget.takes_open_sizes", lambda *_: False)
    compiled = torchport.compile(model, (prompt(4),), target="host", max_length=160)
    for length in (5, 40):
        ids = prompt(length)
        asked = {**ASKED, "max_new_tokens": 4}
        assert_same(compiled.generate(ids, **asked), model.generate(ids, **asked))
    assert len(compiled.generation_programs) == 2


@pytest.mark.parametrize(
    "more", [{"num_beams": 2}, {"do_sample": True, "num_return_sequences": 2, "top_k": 5}], ids=str
)
def test_beams_and_several_sequences(compiled, model, more):
    ids = prompt(5, 2)
    asked = {**ASKED, "max_new_tokens": 8, **more}
    torch.manual_seed(1)
    expected = model.generate(ids, **asked)
    torch.manual_seed(1)
    assert torch.equal(compiled.generate(ids, **asked).sequences, expected.sequences)


def test_a_crop_that_is_refused_changes_no_layer():
    layout = Layout((0,), (StateForm(1, "conv", 0, (4, 3), "float32"),))
    cache = SlotCache([(1, 2, 2)], 1, SlotNumbers(4), torch.float32, layout=layout)
    cache.forget_all_but(2)
    with pytest.raises(RuntimeRefusal, match="cropped"):
        cache.crop(-1)
    assert cache.get_seq_length() == 2


def test_a_cache_is_continued_and_cannot_be_cropped(compiled, model):
    asked = {**ASKED, "max_new_tokens": 6}
    first = compiled.generate(prompt(8), **asked)
    more = torch.cat([first.sequences, prompt(5)], 1)
    expected = model.generate(more, **asked)
    with pytest.raises(RuntimeRefusal, match="cropped"):
        first.past_key_values.crop(-1)
    assert_same(compiled.generate(more, past_key_values=first.past_key_values, **asked), expected)


def test_a_file_generates_as_the_model_does(compiled, file, model):
    loaded = torchport.load(file)
    for length in (3, 40):
        ids = prompt(length)
        asked = {**ASKED, "max_new_tokens": 5}
        assert_same(loaded.generate(ids, **asked), model.generate(ids, **asked))
    with pytest.raises(RuntimeRefusal, match="recurrent states"):
        loaded.prefill(prompt(3))


def test_prompts_and_steps_are_explained(model):
    found = torchport.explain_generation(model, target="openvino", max_length=64)
    assert {call: coverage.ops_remain for call, coverage in found.calls.items()} == {"prompt": 0, "step": 0}


def test_a_model_that_forgets_its_states_in_pieces_is_refused(model, monkeypatch):
    """As in releases of transformers where several tokens at once began anew."""

    def forget(self, conv_states, *args, **kwargs):
        self.conv_states[0].zero_()
        return torch.nn.functional.pad(conv_states, (self.conv_states[0].shape[-1], 0))

    monkeypatch.setattr(recurrent_states.StateLayer, "update_conv_state", forget)
    compiled = torchport.compile(model, (prompt(4),), target="host", max_length=64)
    with pytest.raises(CompileError, match="in pieces"):
        compiled.generate(prompt(4), max_new_tokens=2)


@pytest.mark.parametrize("compiled", ["host"], indirect=True)
@pytest.mark.parametrize(
    "change",
    [
        {"kind": "__class__"},
        {"kind": "recurrent", "shape": [2**40]},
        {"shape": [-1, 3]},
        {"layer": 2**40},
        {"layer": 2},
        {"index": -1},
        {"dtype": "save"},
    ],
    ids=str,
)
def test_impossible_states_of_a_file_are_refused(change, file, tmp_path):
    change_package(
        file, tmp_path / "crafted.pt2", lambda data: data["generation"]["form"]["states"][0].update(change)
    )
    with pytest.raises(PackageError, match=r"recurrent states|dtype"):
        torchport.load(tmp_path / "crafted.pt2")


@pytest.mark.parametrize("compiled", ["host"], indirect=True)
@pytest.mark.parametrize("attention", [[], [1, 1], [-1], [2**40]], ids=str)
def test_impossible_layers_of_a_file_are_refused(attention, file, tmp_path):
    change_package(
        file, tmp_path / "crafted.pt2", lambda data: data["generation"]["form"].update(attention=attention)
    )
    with pytest.raises(PackageError, match="recurrent states"):
        torchport.load(tmp_path / "crafted.pt2")
