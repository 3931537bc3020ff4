"""`generate` fully checks weights once if no user code runs between its steps, and otherwise on each step."""

from types import MethodType

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers import (
    BertTokenizer,
    GenerationConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextStreamer,
)
from transformers.generation.streamers import BaseStreamer

import torchport
from generation.models import tiny_llama
from torchport.compiler.weights import WeightGuard
from torchport.generation.user_code import runs_no_user_code

NEW = 6


class Change:
    """Negates a weight, uncounted by torch, on the third call."""

    def __init__(self, model):
        self.model, self.calls = model, 0

    def __call__(self, *args):
        self.calls += 1
        if self.calls == 3:
            self.model.lm_head.weight.data.mul_(-1)


class Criterion(StoppingCriteria):
    def __init__(self, change):
        self.change = change

    def __call__(self, ids, scores, **kwargs):
        self.change()
        return torch.zeros(ids.shape[0], dtype=torch.bool)


class Processor(LogitsProcessor):
    def __init__(self, change):
        self.change = change

    def __call__(self, ids, scores):
        self.change()
        return scores


class Streamer(BaseStreamer):
    def __init__(self, change):
        self.change = change

    def put(self, value):
        self.change()

    def end(self):
        pass


class Own(LlamaForCausalLM):
    """A class outside transformers."""

    change = None

    def prepare_inputs_for_generation(self, *args, **kwargs):
        if self.change is not None:
            self.change()
        return super().prepare_inputs_for_generation(*args, **kwargs)


def with_criterion(model, change):
    return {"stopping_criteria": StoppingCriteriaList([Criterion(change)])}


def with_processor(model, change):
    return {"logits_processor": LogitsProcessorList([Processor(change)])}


def with_streamer(model, change):
    return {"streamer": Streamer(change)}


def with_tokens_allowed(model, change):
    def allowed(batch, ids):
        change()
        return list(range(97))

    return {"prefix_allowed_tokens_fn": allowed}


DISTURBANCES = [
    pytest.param(with_criterion, marks=pytest.mark.conformance),
    with_streamer,
    pytest.param(with_processor, marks=pytest.mark.conformance),
    pytest.param(with_tokens_allowed, marks=pytest.mark.conformance),
]


def prompt():
    torch.manual_seed(3)
    return torch.randint(3, 97, (1, 4))


def compile_small(model):
    compiled = torchport.compile(model, (prompt(),), target="host", max_length=32)
    compiled.generate(prompt(), max_new_tokens=2, do_sample=False)
    return compiled


def generated(generate, **arguments):
    return generate(prompt(), max_new_tokens=NEW, do_sample=False, **arguments).tolist()


@pytest.mark.parametrize("disturb", DISTURBANCES)
def test_what_an_argument_changes_counts_from_the_next_step_on(disturb):
    model = tiny_llama(num_hidden_layers=1)
    compiled = compile_small(model)
    plain = generated(model.generate)
    arguments = disturb(model, Change(model))
    expected = generated(model.generate, **arguments)
    assert expected != plain
    model.lm_head.weight.data.mul_(-1)  # restore it
    arguments = disturb(model, Change(model))
    assert generated(compiled.generate, **arguments) == expected


@pytest.mark.conformance  # such a class disturbs, see below
def test_what_the_models_own_class_changes_counts():
    model = tiny_llama(num_hidden_layers=1)
    model.__class__ = Own
    compiled = compile_small(model)
    plain = generated(model.generate)
    model.change = Change(model)
    expected = generated(model.generate)
    assert expected != plain
    model.lm_head.weight.data.mul_(-1)
    model.change = Change(model)
    assert generated(compiled.generate) == expected


@pytest.mark.conformance  # hooks disturb, see below
def test_what_a_hook_changes_counts():
    model = tiny_llama(num_hidden_layers=1)
    compiled = compile_small(model)
    plain = generated(model.generate)
    handle = model.register_forward_hook(Change(model))
    expected = generated(model.generate)
    handle.remove()
    assert expected != plain
    model.lm_head.weight.data.mul_(-1)
    model.register_forward_hook(Change(model))
    assert generated(compiled.generate) == expected


def test_weights_are_fully_checked_once_if_no_user_code_runs(monkeypatch):
    model = tiny_llama(num_hidden_layers=1)
    compiled = compile_small(model)
    looks = []
    unchanged = WeightGuard.unchanged

    def counted(self):
        looks.append(self)
        return unchanged(self)

    monkeypatch.setattr(WeightGuard, "unchanged", counted)
    generated(compiled.generate, generation_config=GenerationConfig(eos_token_id=None))
    assert len(looks) == len(set(map(id, looks))) >= 1
    looks.clear()
    generated(compiled.generate, streamer=Streamer(lambda: None))
    assert len(looks) == NEW


def test_what_was_changed_before_counts_and_so_does_what_is_changed_after():
    model = tiny_llama(num_hidden_layers=1)
    compiled = compile_small(model)
    for _ in range(2):
        model.lm_head.weight.data.mul_(-1)
        assert generated(compiled.generate) == generated(model.generate)


def test_who_could_change_a_weight():
    model = tiny_llama(num_hidden_layers=1)
    assert runs_no_user_code(model, (prompt(),), {"max_new_tokens": 3, "bad_words_ids": [[5], [6, 7]]})
    assert runs_no_user_code(model, (), {"generation_config": GenerationConfig(stop_strings=["x"])})
    tokenizer = BertTokenizer({"[UNK]": 0, "[PAD]": 1})
    assert runs_no_user_code(model, (), {"streamer": TextStreamer(tokenizer)})
    assert not runs_no_user_code(model, (), {"streamer": TextStreamer(Change(model))})
    assert not runs_no_user_code(model, (), {"streamer": Streamer(print)})
    changed = TextStreamer(tokenizer)
    changed.on_finalized_text = lambda text, stream_end=False: None
    assert not runs_no_user_code(model, (), {"streamer": changed})
    assert not runs_no_user_code(model, (), {"assistant_model": model})
    assert not runs_no_user_code(model, (), {"custom_generate": print})
    assert not runs_no_user_code(model, (), {"stopping_criteria": [Criterion(print)]})
    config = GenerationConfig()
    config.watermarking_config = Change(model)
    assert not runs_no_user_code(model, (), {"generation_config": config})
    model.generation_config.watermarking_config = Change(model)
    assert not runs_no_user_code(model, (), {})


def test_hooks_and_methods_that_were_set_disturb():
    model = tiny_llama(num_hidden_layers=1)
    inner = model.model.layers[0].register_forward_pre_hook(print)
    assert not runs_no_user_code(model, (), {})
    inner.remove()
    everywhere = register_module_forward_hook(lambda *_: None)
    try:
        assert not runs_no_user_code(model, (), {})
    finally:
        everywhere.remove()
    assert runs_no_user_code(model, (), {})
    outer = model.register_forward_hook(print)
    assert not runs_no_user_code(model, (), {})
    outer.remove()
    model.__class__ = Own
    assert not runs_no_user_code(model, (), {})
    model.__class__ = LlamaForCausalLM
    assert runs_no_user_code(model, (), {})
    model._update_model_kwargs_for_generation = MethodType(lambda self, *args, **kwargs: {}, model)
    assert not runs_no_user_code(model, (), {})
