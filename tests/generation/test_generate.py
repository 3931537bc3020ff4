"""`compiled.generate`: transformers' loop, with the model's own results."""

from __future__ import annotations

import inspect
from types import MethodType

import pytest
import torch
from transformers import (
    BertConfig,
    BertLMHeadModel,
    DynamicCache,
    GenerationConfig,
    LlamaForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    StoppingCriteria,
    StoppingCriteriaList,
    modeling_rope_utils,
)
from transformers.generation.streamers import BaseStreamer

import torchport
from generation.models import padded_batch, small_causal, tiny_llama
from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.open_call import OpenCall
from torchport.errors import CaptureError, CompileError, RuntimeRefusal
from torchport.generation.call_sizes import FixedSizes
from torchport.generation.model_inputs import MaskForm

NEW = 12


@pytest.fixture(scope="module")
def model():
    return tiny_llama()


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        made = torchport.compile(model, (torch.ones(1, 4, dtype=torch.long),), target="host", max_length=96)
        made.generate(torch.ones(1, 40, dtype=torch.long), max_new_tokens=2)  # prompt pieces, and steps
        yield made


def _prompt(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (batch, length))


def _assert_same(compiled, model, ids, **arguments):
    arguments = {"max_new_tokens": NEW, "do_sample": False, **arguments}
    torch.manual_seed(5)
    expected = model.generate(ids, **arguments)
    torch.manual_seed(5)
    assert torch.equal(compiled.generate(ids, **arguments), expected)


def test_twenty_prompts_need_one_build_where_sizes_are_open(compiled, model):
    assert isinstance(compiled, GeneratingModel)
    for length in range(1, 80, 4):
        ids = _prompt(length)
        mask = torch.ones_like(ids)
        _assert_same(compiled, model, ids, attention_mask=mask, max_new_tokens=3)
    assert len(compiled.generation_programs) == 1
    assert compiled.fallbacks.fallbacks == 0


def test_one_build_where_a_single_token_needs_no_copy():
    model = tiny_llama(num_hidden_layers=1, attn_implementation="eager")
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=64)
    _assert_same(compiled, model, _prompt(7))
    assert len(compiled.generation_programs) == 1


def test_two_builds_where_no_program_is_for_all_widths(monkeypatch):
    def refuse(*_):
        raise FixedSizes("for a test")

    monkeypatch.setattr(OpenCall, "_build_for_all_sizes", refuse)
    model = tiny_llama(num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=64)
    for length in (5, 34, 1):
        _assert_same(compiled, model, _prompt(length), max_new_tokens=3)
    assert len(compiled.generation_programs) == 2
    assert compiled.fallbacks.fallbacks == 0


def test_keys_and_values_of_one_product_need_one_build():
    model = small_causal("gpt2", n_layer=1)
    compiled = torchport.compile(model, (_prompt(4),), target="openvino", max_length=64)
    _assert_same(compiled, model, _prompt(9))
    assert len(compiled.generation_programs) == 1


def test_logits_of_every_step_equal_those_of_the_model(compiled, model):
    asked = {
        "max_new_tokens": NEW,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    result = compiled.generate(_prompt(7), **asked)
    with torch.no_grad():
        forced = model(result.sequences).logits[:, 6:-1]
    torch.testing.assert_close(torch.stack(result.logits, 1), forced)


def test_a_prompt_that_ends_near_the_limit(compiled, model):
    # Its last piece, padded to full width, would not fit into the slots.
    _assert_same(compiled, model, _prompt(90), max_new_tokens=6)


def test_a_padded_batch(compiled, model):
    ids, mask = padded_batch(9, 97)
    _assert_same(compiled, model, ids, attention_mask=mask)


def test_a_long_padded_batch(compiled, model):
    ids, mask = padded_batch(70, 97)
    _assert_same(compiled, model, ids, attention_mask=mask)


@pytest.mark.parametrize(
    "arguments",
    [
        {"do_sample": True, "temperature": 0.8, "top_k": 20},
        {"do_sample": True, "top_p": 0.9, "num_return_sequences": 3},
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2, "do_sample": True},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"max_length": 20, "max_new_tokens": None},
    ],
    ids=lambda arguments: "-".join(arguments),
)
def test_arguments_of_the_library(compiled, model, arguments):
    ids = _prompt(6)
    _assert_same(compiled, model, ids, attention_mask=torch.ones_like(ids), **arguments)


def test_a_streamer_gets_each_token_as_it_comes(compiled):
    class Noting(BaseStreamer):
        def __init__(self) -> None:
            self.got: list[list[int]] = []

        def put(self, value: torch.Tensor) -> None:
            self.got.append(value.flatten().tolist())

        def end(self) -> None:
            self.got.append([])

    streamer, ids = Noting(), _prompt(5)
    result = compiled.generate(ids, max_new_tokens=3, do_sample=False, streamer=streamer)
    assert streamer.got == [ids[0].tolist(), *[[token] for token in result[0, 5:].tolist()], []]


def test_stopping_criteria(compiled, model):
    class AtEight(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: object, **kwargs: object) -> torch.Tensor:
            return torch.full((input_ids.shape[0],), input_ids.shape[1] >= 8)

    result = compiled.generate(
        _prompt(5), max_new_tokens=NEW, stopping_criteria=StoppingCriteriaList([AtEight()])
    )
    assert result.shape == (1, 8)


def test_going_on_from_the_cache_of_an_earlier_call(compiled, model):
    first = compiled.generate(_prompt(5), max_new_tokens=4, do_sample=False, return_dict_in_generate=True)
    longer = torch.cat([first.sequences, _prompt(3)], 1)
    _assert_same(compiled, model, longer)
    again = compiled.generate(
        longer, max_new_tokens=NEW, do_sample=False, past_key_values=first.past_key_values
    )
    assert torch.equal(again, model.generate(longer, max_new_tokens=NEW, do_sample=False))


def test_a_cache_that_was_made_under_inference_mode(compiled, model):
    asked = {"max_new_tokens": NEW, "do_sample": False}
    with torch.inference_mode():
        first = compiled.generate(_prompt(5), return_dict_in_generate=True, **asked)
    longer = torch.cat([first.sequences, _prompt(3)], 1)
    again = compiled.generate(longer, past_key_values=first.past_key_values, **asked)
    assert torch.equal(again, model.generate(longer, **asked))


def test_arguments_by_their_place(compiled, model):
    ids, config = _prompt(5), GenerationConfig(max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert torch.equal(compiled.generate(ids, config), model.generate(ids, config))


def test_assistants_propose_tokens(compiled, model):
    assistant = tiny_llama(num_hidden_layers=1)
    _assert_same(compiled, model, _prompt(6), assistant_model=assistant)


def test_embeddings_as_a_prompt_run_with_eager_torch_and_are_counted(compiled, model):
    embeddings = model.get_input_embeddings()(_prompt(6)).detach()
    before = compiled.fallbacks.fallbacks
    expected = model.generate(inputs_embeds=embeddings, max_new_tokens=NEW, do_sample=False)
    given = compiled.generate(inputs_embeds=embeddings, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(given, expected)
    assert compiled.fallbacks.fallbacks == before + 1
    assert "inputs_embeds" in compiled.fallbacks.last_reason


@pytest.mark.conformance  # test_user_code.py changes a weight before and after a call
def test_a_changed_weight_is_noticed():
    model = tiny_llama(num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(3),), target="host", max_length=32)
    ids = _prompt(1)
    _assert_same(compiled, model, ids)
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    _assert_same(compiled, model, ids)


def test_the_model_stays_as_it_is():
    model = tiny_llama(num_hidden_layers=1)
    before, held = dict(vars(model)), {key: value.clone() for key, value in model.state_dict().items()}
    torchport.compile(model, (_prompt(3),), target="host", max_length=32).generate(
        _prompt(1), max_new_tokens=3
    )
    assert vars(model) == before
    assert type(model).__name__ == "LlamaForCausalLM"
    assert "forward" not in vars(model)
    assert all(torch.equal(value, held[key]) for key, value in model.state_dict().items())


def test_the_forward_is_compiled_as_well(compiled, model):
    ids = _prompt(4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids).logits, model(ids).logits)
    assert compiled.coverage.ops_before > 0


def test_on_openvino(model):
    compiled = torchport.compile(model, (_prompt(4),), target="openvino", max_length=64)
    ids, mask = padded_batch(9, 97)
    _assert_same(compiled, model, ids, attention_mask=mask)
    assert [record.coverage.ops_remain for record in compiled.generation_programs] == [0]
    assert compiled.fallbacks.fallbacks == 0


def test_ttnn_takes_the_whole_step():
    model = tiny_llama(num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(1),), target="ttnn", max_length=64)
    result = compiled.generate(
        _prompt(1), max_new_tokens=4, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    with torch.no_grad():
        expected = model(result.sequences).logits[:, :-1]
    torch.testing.assert_close(torch.stack(result.logits, 1), expected, rtol=5e-2, atol=1e-2)
    assert [record.coverage.ops_remain for record in compiled.generation_programs] == [0]


def test_bfloat16_is_no_further_from_float32_than_eager_torch():
    half = tiny_llama(num_hidden_layers=1).to(torch.bfloat16)
    exact = tiny_llama(num_hidden_layers=1)
    exact.load_state_dict(half.state_dict())
    compiled = torchport.compile(half, (_prompt(4),), target="openvino", max_length=64)
    result = compiled.generate(
        _prompt(4), max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    with torch.no_grad():
        eager = half(result.sequences).logits[:, 3:-1].float()
        expected = exact(result.sequences).logits[:, 3:-1]
    ours = torch.stack(result.logits, 1)
    assert (ours - expected).abs().max() <= 2 * (eager - expected).abs().max()
    assert all(layer.keys.dtype is torch.bfloat16 for layer in result.past_key_values.layers)


def test_an_empty_prompt(compiled):
    with pytest.raises(RuntimeRefusal, match="the prompt is empty"):
        compiled.generate(torch.ones(1, 0, dtype=torch.long), max_new_tokens=2)


def test_a_prompt_beyond_the_limit(compiled):
    with pytest.raises(RuntimeRefusal, match=r"to 102, and the model was compiled for 96.*max_length=102"):
        compiled.generate(_prompt(100), max_new_tokens=2)


def test_a_mask_of_other_numbers():
    model = small_causal("bloom", n_layer=1)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=16)
    with pytest.raises(RuntimeRefusal, match="values other than 0 and 1"):
        compiled.generate(_prompt(4), attention_mask=torch.full((1, 4), 2), max_new_tokens=2)


def test_a_cache_of_another_class(compiled):
    with pytest.raises(RuntimeRefusal, match="a DynamicCache is not a cache of this compiled model"):
        compiled.generate(_prompt(4), max_new_tokens=2, past_key_values=DynamicCache())
    with pytest.raises(RuntimeRefusal, match="'offloaded'"):
        compiled.generate(_prompt(4), max_new_tokens=2, cache_implementation="offloaded")


def test_max_length_is_for_models_that_generate():
    with pytest.raises(CompileError, match="this one does not"):
        torchport.compile(torch.nn.ReLU(), (torch.ones(2),), target="host", max_length=8)
    with pytest.raises(CompileError, match="at least 1"):
        torchport.compile(tiny_llama(), (_prompt(2),), target="host", max_length=0)


def test_a_file_of_a_model_that_was_only_called_holds_the_forward(tmp_path):
    model, ids = tiny_llama(), _prompt(4)
    compiled = torchport.compile(model, (ids,), {"use_cache": False}, target="host")
    with torch.no_grad():
        compiled(ids, use_cache=False)
    torchport.save(compiled, tmp_path / "model.pt2")
    loaded = torchport.load(tmp_path / "model.pt2")
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids, use_cache=False).logits, model(ids).logits)
    assert not hasattr(loaded, "generate")


def test_guidance_calls_the_model_with_a_cache_of_its_own(compiled, model):
    _assert_same(compiled, model, _prompt(6), guidance_scale=1.5, max_new_tokens=4)
    assert "a DynamicCache" in compiled.fallbacks.last_reason


def test_attention_weights_are_of_the_tokens_that_are_there():
    model = tiny_llama(num_hidden_layers=1, attn_implementation="eager")
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=64)
    asked = {"max_new_tokens": 3, "output_attentions": True, "return_dict_in_generate": True}
    ids = _prompt(5)
    given, expected = compiled.generate(ids, **asked), model.generate(ids, **asked)
    for ours, theirs in zip(given.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_cache_of_another_number_of_sequences(compiled):
    first = compiled.generate(_prompt(5), max_new_tokens=2, return_dict_in_generate=True)
    with pytest.raises(RuntimeRefusal, match="the cache holds 1 sequences, but 3 were given"):
        compiled.generate(_prompt(9, 3), max_new_tokens=2, past_key_values=first.past_key_values)


def test_a_model_that_is_given_another_dtype():
    model = tiny_llama(num_hidden_layers=1, attn_implementation="eager")
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=32)
    assert compiled.generation.new_cache(1).layers[0].keys.dtype is torch.float32
    model.to(torch.bfloat16)
    _assert_same(compiled, model, _prompt(5), max_new_tokens=2)


def test_what_was_added_to_the_model_itself_is_done_as_well():
    model = tiny_llama(num_hidden_layers=1)
    ids = _prompt(5)
    before = model.generate(ids, max_new_tokens=3, do_sample=False)

    def forward(self, *args, **kwargs):
        output = LlamaForCausalLM.forward(self, *args, **kwargs)
        output.logits = -output.logits
        return output

    def shift(module, args, output):
        output.logits = output.logits.roll(1, -1)

    model.forward = MethodType(forward, model)
    changed = model.generate(ids, max_new_tokens=3, do_sample=False)
    model.register_forward_hook(shift)
    compiled = torchport.compile(model, (ids,), target="host", max_length=32)
    assert not torch.equal(before, changed)
    assert not torch.equal(changed, model.generate(ids, max_new_tokens=3, do_sample=False))
    _assert_same(compiled, model, ids, max_new_tokens=3)


def test_a_forward_that_is_not_a_method_is_refused():
    model = tiny_llama()
    model.forward = lambda *args, **kwargs: None
    with pytest.raises(CompileError, match="forward was replaced by a function that is not a method"):
        torchport.compile(model, (_prompt(3),), target="host").generate(_prompt(3))


def test_positions_that_depend_on_the_length_of_the_whole_prompt():
    factors = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 36}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, **factors}
    model = tiny_llama(rope_parameters=rope, initializer_range=0.3, num_hidden_layers=1)
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=64)
    if "torch.where" not in inspect.getsource(modeling_rope_utils.dynamic_rope_update):
        # Older releases of transformers choose the factors in Python.
        with pytest.raises(CaptureError, match="depends on the values of a tensor"):
            compiled.generate(_prompt(4), max_new_tokens=2)
        return
    asked = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    for length, new in ((34, 5), (40, 2)):  # the length is reached by steps, and by the prompt
        ids = _prompt(length)
        given, expected = (each.generate(ids, max_new_tokens=new, **asked) for each in (compiled, model))
        torch.testing.assert_close(given.logits, expected.logits)
    assert compiled.fallbacks.fallbacks == 1
    assert "the whole prompt's length" in compiled.fallbacks.last_reason


def test_models_whose_tokens_see_later_ones_are_refused():
    sizes = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 40}
    config = BertConfig(num_hidden_layers=2, initializer_range=0.3, **sizes)  # and no decoder
    model = BertLMHeadModel(config).eval()
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=32)
    with pytest.raises(CompileError, match="depends on the tokens after it"):
        compiled.generate(_prompt(5), max_new_tokens=2)


def test_models_that_keep_nothing_are_refused_for_that():
    config = OpenAIGPTConfig(vocab_size=97, n_embd=32, n_layer=1, n_head=2)
    model = OpenAIGPTLMHeadModel(config).eval()
    compiled = torchport.compile(model, (_prompt(4),), target="host", max_length=32)
    with pytest.raises(CompileError, match="keeps no keys and values"):
        compiled.generate(_prompt(5), max_new_tokens=2)


def test_padding_that_is_a_piece_by_itself_sees_filled_slots():
    # Near the limit a prompt is run token by token. Engines differ in the result of a token that attends to
    # nothing, and no token may attend to unwritten slots: an engine that holds the cache has none there.
    mask = torch.tensor([[False, False, False], [False, True, False]]).view(1, 1, 2, 3)
    first, last = (MaskForm(mask, 3).piece(mask, 1, 0, place, 1, 1) for place in (0, 1))
    assert first.tolist() == [[[[True, False, False]]]]
    assert torch.equal(last, mask[:, :, 1:])


def test_a_sequence_whose_tokens_are_all_hidden(compiled, model):
    # What its tokens compute depends on the attention's implementation and on the number of slots.
    ids, mask = _prompt(3, 2), torch.tensor([[1, 1, 1], [0, 0, 0]])
    before = compiled.fallbacks.fallbacks
    given = compiled.generate(ids, attention_mask=mask, max_new_tokens=6)
    assert torch.equal(given, model.generate(ids, attention_mask=mask, max_new_tokens=6))
    assert compiled.fallbacks.fallbacks == before + 6
    # transformers hides padding by itself
    padded = compiled.generate(torch.full((1, 5), 7), pad_token_id=7, max_new_tokens=6)
    assert torch.equal(padded, model.generate(torch.full((1, 5), 7), pad_token_id=7, max_new_tokens=6))


def test_a_cache_whose_tokens_are_all_hidden_is_refused(compiled):
    first = compiled.generate(_prompt(5), max_new_tokens=2, return_dict_in_generate=True)
    longer, hidden = torch.cat([first.sequences, _prompt(2)], 1), torch.zeros(1, 9, dtype=torch.long)
    with pytest.raises(RuntimeRefusal, match="the prompt of sequence 0 is empty"):
        compiled.generate(
            longer, attention_mask=hidden, past_key_values=first.past_key_values, max_new_tokens=2
        )


def test_a_mask_of_fewer_tokens_than_the_prompt(compiled):
    with pytest.raises(RuntimeRefusal, match="the attention mask has 5 columns, but the prompt has 7 tokens"):
        compiled.generate(_prompt(7), attention_mask=torch.ones(1, 5, dtype=torch.long), max_new_tokens=2)


def test_a_prompt_shorter_than_the_cache(compiled):
    first = compiled.generate(_prompt(5), max_new_tokens=4, return_dict_in_generate=True)
    with pytest.raises(RuntimeRefusal, match="no token beyond the 8 in the cache"):
        compiled.generate(_prompt(3), max_new_tokens=2, past_key_values=first.past_key_values)


def test_a_cache_is_cropped_as_the_library_crops(compiled):
    # A positive number used to mean how many tokens to keep; transformers refuses it for its own caches.
    cache = compiled.generate(_prompt(5), max_new_tokens=4, return_dict_in_generate=True).past_key_values
    with pytest.raises(ValueError, match="negative"):
        cache.crop(5)
    assert cache.get_seq_length() == 8
    cache.crop(-3)
    assert cache.get_seq_length() == 5


def test_continuous_batching_is_refused_before_it_allocates(compiled):
    with pytest.raises(RuntimeRefusal, match="'paged'"):
        compiled.generate(_prompt(4), max_new_tokens=2, cache_implementation="paged")


def test_a_loop_of_the_users_passes_arguments_by_their_place(compiled, model):
    def loop(model, input_ids, **given):
        return model(input_ids, given["attention_mask"]).logits[:, -1].argmax(-1)

    ids, mask = padded_batch(9, 97)
    asked = {"attention_mask": mask, "custom_generate": loop, "use_cache": False, "max_new_tokens": 2}
    assert torch.equal(compiled.generate(ids, **asked), model.generate(ids, **asked))
