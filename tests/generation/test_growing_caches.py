"""Caches grow with the number of tokens: one program serves all their sizes."""

from __future__ import annotations

import pytest
import torch

import torchport
from generation.models import padded_batch, small_causal, tiny_llama
from torchport.compiler.open_call import OpenCall
from torchport.generation.call_sizes import CallSizes, FixedSizes
from torchport.generation.model_inputs import MaskForm
from torchport.generation.pieces import SlotNumbers

LONG = {"max_position_embeddings": 512}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "cache"))


def _prompt(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (batch, length))


def _assert_same(compiled, model, ids, **arguments):
    arguments = {"max_new_tokens": 12, "do_sample": False, **arguments}
    assert torch.equal(compiled.generate(ids, **arguments), model.generate(ids, **arguments))


def _slots(compiled, ids, **arguments) -> int:
    found = compiled.generate(ids, do_sample=False, return_dict_in_generate=True, **arguments)
    return int(found.past_key_values.slots)


@pytest.mark.parametrize("target", ["openvino", "host"])
def test_one_program_for_caches_of_all_sizes(target):
    model = tiny_llama(num_hidden_layers=1, **LONG)
    compiled = torchport.compile(model, (_prompt(4),), target=target, max_length=300)
    for length in (5, 120, 250):
        _assert_same(compiled, model, _prompt(length), max_new_tokens=20)
    assert [_slots(compiled, _prompt(length), max_new_tokens=2) for length in (5, 127, 128, 290)] == [
        128, 128, 256, 300,
    ]  # fmt: skip
    assert len(compiled.generation_programs) == 1
    assert compiled.fallbacks.fallbacks == 0
    assert target == "host" or not compiled.generation_programs[0].coverage.stayed


@pytest.mark.parametrize("kind", ["bloom", pytest.param("mistral", marks=pytest.mark.conformance), "gpt2"])
def test_masks_of_other_forms_cover_what_the_cache_has(kind):
    model = small_causal(kind, num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=180)
    _assert_same(compiled, model, _prompt(118, 3))
    ids, mask = padded_batch(120, 97)
    _assert_same(compiled, model, ids, attention_mask=mask)
    assert compiled.fallbacks.fallbacks == 0


def test_beams_and_a_cache_that_goes_on_in_more_slots():
    model = tiny_llama(num_hidden_layers=1, **LONG)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=200)
    _assert_same(compiled, model, _prompt(122), num_beams=2)
    ids = _prompt(100, 2)  # as many as there are beams, so no other program is needed
    first = compiled.generate(ids, max_new_tokens=10, do_sample=False, return_dict_in_generate=True)
    longer = torch.cat([first.sequences, _prompt(30, 2)], 1)
    found = compiled.generate(
        longer, past_key_values=first.past_key_values, max_new_tokens=8, do_sample=False
    )
    assert torch.equal(found, model.generate(longer, max_new_tokens=8, do_sample=False))


def test_a_call_for_one_size_alone_gets_all_slots_at_once(monkeypatch):
    build = OpenCall._build_for_all_sizes

    def refuse(self, args):
        if self._sizes.slots:
            raise FixedSizes("for a test")
        return build(self, args)

    monkeypatch.setattr(OpenCall, "_build_for_all_sizes", refuse)
    model = tiny_llama(num_hidden_layers=1, **LONG)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=200)
    for length in (7, 140):
        _assert_same(compiled, model, _prompt(length))
    assert _slots(compiled, _prompt(3), max_new_tokens=2) == 200
    assert len(compiled.generation_programs) == 1
    assert compiled.fallbacks.fallbacks == 0


def test_a_file_steps_into_more_slots(tmp_path):
    model = tiny_llama(num_hidden_layers=1, **LONG)
    compiled = torchport.compile(model, (_prompt(4),), target="openvino", max_length=200)
    compiled.build_generation()
    torchport.save(compiled, tmp_path / "model.pt2")
    loaded = torchport.load(tmp_path / "model.pt2")
    ids = _prompt(126)
    logits, cache = loaded.prefill(ids)
    sizes = [cache.slots]
    for _ in range(4):
        with torch.no_grad():
            expected = model(ids).logits[:, -1]
        torch.testing.assert_close(logits, expected)
        token = expected.argmax(-1)
        ids = torch.cat([ids, token[:, None]], 1)
        logits = loaded.step(token, cache)
        sizes.append(cache.slots)
    assert sizes == [128, 128, 128, 200, 200]
    _assert_same(loaded, model, _prompt(120))


def test_numbers_of_slots():
    assert [SlotNumbers.open(300).for_tokens(length) for length in (0, 1, 128, 129, 256, 257)] == [
        128, 128, 128, 256, 256, 300,
    ]  # fmt: skip
    assert SlotNumbers.open(128) == SlotNumbers(128)
    assert SlotNumbers(300).for_tokens(1) == 300


def test_slots_that_a_mask_does_not_know_are_not_seen():
    for mask, unseen in (
        (torch.ones(1, 1, 1, 3, dtype=torch.bool), False),
        (torch.zeros(1, 1, 1, 3), torch.finfo(torch.float32).min),
    ):
        found = MaskForm(mask, 5).piece(mask, 1, 2, 0, 1, 1)
        assert found.flatten().tolist() == [*mask.flatten().tolist(), unseen, unseen]
    row = torch.tensor([[0, 1, 1, 1]])
    assert MaskForm(row, 3).piece(row, 1, 1, 0, 1, 1).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize(("most", "tried"), [(256, 256), (1 << 24, 1 << 13), (1 << 40, 1 << 13)])
def test_a_program_is_tried_with_no_more_slots_than_memory_holds(most, tried):
    call = OpenCall.__new__(OpenCall)
    call._sizes = CallSizes(32, most, 128)
    past = [torch.empty(2, 8, 128, 64) for _ in range(4)]  # 2 ** 13 elements a slot, with the values
    assert call._slots_tried((None, None, None, None, past, past)) == tried
