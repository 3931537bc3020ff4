"""KV caches that OpenVINO holds as states between calls match the caller's."""

import functools
import platform
import threading

import pytest
import torch

import torchport
from generation.models import padded_batch, small_causal, tiny_llama
from torchport.targets.openvino import compile_model, stateful_caches
from torchport.targets.openvino.cache_states import CacheStates
from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.stateful_caches import Cache, HeldCaches
from torchport.targets.target import OutOfRange

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
PLAIN = {"cache": False, "speed_trial": False}
GREEDY = {"max_new_tokens": 12, "do_sample": False}
# The kernel requires heads of this width.
SIZES = {"hidden_size": 128, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}


class Request:
    """A fake infer request: states that can be set, queried and reset."""

    class State:
        def __init__(self, name):
            self.name, self.state = name, None

    def __init__(self, names):
        self.states = [self.State(name) for name in names]

    def query_state(self):
        return self.states

    def reset_state(self):
        for state in self.states:
            state.state = None

    def held(self):
        """Return what the states were set to."""
        return [
            None if state.state is None else torch.from_numpy(state.state.data.copy())
            for state in self.states
        ]


class Caller:
    """Owns two caches and makes calls as a model's caller would."""

    def __init__(self, slots=6):
        self.request = Request(["keys", "values"])
        caches = [Cache("keys", 1, 0), Cache("values", 2, 1)]
        self.rows = CacheStates(HeldCaches(None, 0, slots - 1, [3], caches, 1), self.request)
        self.caches = [torch.randn(1, 2, slots, 4) for _ in range(2)]
        self.filled = 0

    def prepare(self, start, mask, count):
        """Begin a call."""
        given = [torch.tensor(start), *self.caches, mask.view(1, 1, 1, -1)]
        self.rows.prepare(given, [tensor.data_ptr() for tensor in given], count)

    def call(self, start, count=1, *, write=True, mask=None):
        """Make a call, write its rows to the caches, and return whether the states were filled first."""
        for state in self.request.states:
            state.state = "untouched"
        if mask is None:
            mask = torch.arange(self.caches[0].shape[2]) < start + count
        self.prepare(start, mask, count)
        made = [torch.randn(1, 2, count, 4) for _ in range(2)]
        self.rows.note(made)
        if write:
            for cache, rows in zip(self.caches, made, strict=True):
                cache.narrow(2, start, count).copy_(rows)
        return any(state.state != "untouched" for state in self.request.states)


def test_states_are_filled_once_and_follow():
    caller = Caller()
    assert caller.call(2)
    held = caller.request.held()
    assert all(state.shape == (1, 2, 2, 4) for state in held)
    assert not caller.call(3, 2)
    assert not caller.call(5)


def test_a_new_sequence_begins_with_nothing():
    caller = Caller()
    assert caller.call(0, 3)
    assert caller.request.held() == [None, None]
    assert not caller.call(3)
    assert caller.call(0)


@pytest.mark.parametrize(
    "change", ["crop", "write", "instead", "other", "forgotten", "failed", "not written"]
)
def test_states_are_filled_again_when_anything_else_happened(change):
    caller = Caller()
    caller.call(2, write=change not in ("instead", "not written"))
    start = 3
    if change == "crop":
        start = 2
    elif change == "write":
        caller.caches[1][0, 0, 0, 0] = 7.0
    elif change == "instead":
        for cache in caller.caches:
            cache.narrow(2, 2, 1).copy_(torch.randn(1, 2, 1, 4))
    elif change == "other":
        caller.caches[0] = caller.caches[0].clone()
    elif change == "forgotten":
        caller.rows.forget()
    elif change == "failed":  # a call that did not complete
        caller.prepare(3, torch.arange(6) < 4, 1)
    assert caller.call(start)
    expected = [cache[:, :, :start] for cache in caller.caches]
    for found, cache in zip(caller.request.held(), expected, strict=True):
        torch.testing.assert_close(found, cache, rtol=0, atol=0)


def test_tensors_that_torch_does_not_count_for_are_read_each_time():
    caller = Caller()
    with torch.inference_mode():
        caller.caches = [torch.randn(1, 2, 6, 4) for _ in range(2)]
        assert caller.call(2)
        assert caller.call(3)


@pytest.mark.parametrize(
    ("start", "count", "message"),
    [(5, 2, "not appended"), (-1, 1, "not appended"), (6, 1, "not appended")],
)
def test_rows_that_go_elsewhere_are_refused(start, count, message):
    with pytest.raises(OutOfRange, match=message):
        Caller().call(start, count)


@pytest.mark.parametrize(("start", "mask"), [(2, torch.arange(6) < 5), (0, torch.tensor([True]))])
def test_a_mask_that_shows_rows_that_are_not_there_is_refused(start, mask):
    with pytest.raises(OutOfRange, match="not written yet"):
        Caller().call(start, mask=mask)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e20])
def test_a_cache_that_could_overflow_is_refused(value):
    caller = Caller()
    caller.caches[1][0, 1, 1, 2] = value
    with pytest.raises(OutOfRange, match="not finite, or so large"):
        caller.call(2)


@pytest.fixture
def fills(monkeypatch):
    """Record how many rows the states are filled with."""
    noted, fill = [], CacheStates._fill

    def noting(self, caches, start):
        noted.append(start)
        fill(self, caches, start)

    monkeypatch.setattr(CacheStates, "_fill", noting)
    return noted


def compiled_llama(batch=1, dtype=torch.float32, max_length=64, **changes):
    model = tiny_llama(**{**SIZES, **changes}).to(dtype)
    ids = torch.randint(3, 97, (batch, 5), generator=torch.Generator().manual_seed(3))
    compiled = torchport.compile(model, (ids,), target="openvino", max_length=max_length, options=PLAIN)
    assert torch.equal(compiled.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    return compiled, model, ids


@functools.cache
def shared_llama():
    """Return a compiled model for tests that do not modify it; compiling takes longer than they do."""
    return compiled_llama()


@functools.cache
def shared_host_llama():
    """Return the same model compiled for the host, which reads the caches directly."""
    _, model, ids = shared_llama()
    return torchport.compile(model, (ids,), target="host", max_length=64, options=PLAIN)


@pytest.mark.parametrize(
    ("heads", "max_length"),
    [
        pytest.param(4, 300, marks=pytest.mark.conformance),
        (2, 64),
        pytest.param(1, 300, marks=pytest.mark.conformance),
    ],
)
def test_generating_fills_states_at_the_beginning_alone(fills, heads, max_length):
    if (heads, max_length) == (2, 64):
        compiled, model, ids = shared_llama()
    else:
        compiled, model, ids = compiled_llama(max_length=max_length, num_key_value_heads=heads)
    fills.clear()
    for _ in range(2):
        assert torch.equal(compiled.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    assert fills == ([0, 0] if IS_X86 else [])
    assert compiled.fallbacks.fallbacks == 0


def test_bfloat16_is_as_close_as_eager_torch(fills, monkeypatch):
    monkeypatch.setattr(compile_model, "computes_halves", lambda: not IS_X86)
    model = tiny_llama(num_hidden_layers=1, **SIZES).to(torch.bfloat16)
    wide = tiny_llama(num_hidden_layers=1, **SIZES).to(torch.bfloat16).float()
    ids = torch.randint(3, 97, (1, 20), generator=torch.Generator().manual_seed(3))
    compiled = torchport.compile(model, (ids[:, :5],), target="openvino", max_length=64, options=PLAIN)
    settings = {**GREEDY, "output_logits": True, "return_dict_in_generate": True}
    own, eager = (each.generate(ids, **settings) for each in (compiled, model))
    exact = wide(eager.sequences).logits[:, 19:-1]
    same = (own.sequences == eager.sequences).long().cumprod(1)[:, 20:].bool()[0]
    assert same.any()
    distances = [(torch.stack(found.logits, 1).float() - exact)[:, same].norm() for found in (own, eager)]
    assert distances[0] <= 2 * distances[1]
    assert not IS_X86 or set(fills) == {0}


def test_caches_in_turns_each_go_on_from_their_own(fills):
    compiled, model, ids = shared_llama()
    others = torch.randint(3, 97, (1, 9), generator=torch.Generator().manual_seed(5))
    expected = {name: model.generate(each, **GREEDY) for name, each in (("a", ids), ("b", others))}
    found = {"a": ids, "b": others}
    pasts = {"a": None, "b": None}
    for _ in range(GREEDY["max_new_tokens"]):
        for name in found:
            result = compiled.generate(
                found[name], past_key_values=pasts[name], max_new_tokens=1, do_sample=False,
                return_dict_in_generate=True,
            )  # fmt: skip
            found[name], pasts[name] = result.sequences, result.past_key_values
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert not IS_X86 or any(fills)


@pytest.mark.parametrize("change", ["crop", "write", "scale"])
def test_a_cache_that_was_changed_counts_as_it_is(change):
    compiled, _, ids = shared_llama()
    result = compiled.generate(ids, **GREEDY, return_dict_in_generate=True)
    cache, length = result.past_key_values, result.sequences.shape[1] - 1
    keys, values = ([each.clone() for each in buffers] for buffers in cache.buffers)
    if change == "crop":
        cache.crop(-4)
        length -= 4
    elif change == "write":
        for each in (cache.layers[1].values, values[1]):
            each[:, :, 2] = 0.5
    else:
        for each in (cache.layers[0].keys, keys[0]):
            each.mul_(-1.0)
    plain = shared_host_llama()
    start = plain.generate(result.sequences[:, :length], max_new_tokens=1, return_dict_in_generate=True)
    for buffers, wanted in zip(start.past_key_values.buffers, (keys, values), strict=True):
        for buffer, each in zip(buffers, wanted, strict=True):
            buffer.copy_(each)
    token = result.sequences[:, : length + 1]
    settings = {"max_new_tokens": 6, "do_sample": False}
    own = compiled.generate(token, past_key_values=cache, **settings)
    assert torch.equal(own, plain.generate(token, past_key_values=start.past_key_values, **settings))


def test_beams():
    compiled, model, ids = shared_llama()
    arguments = {**GREEDY, "num_beams": 3, "num_return_sequences": 2}
    assert torch.equal(compiled.generate(ids, **arguments), model.generate(ids, **arguments))
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize("sequences", [pytest.param(1, marks=pytest.mark.conformance), 3])
def test_padded_prompts(sequences, tmp_path):
    model = tiny_llama(num_hidden_layers=1, **SIZES)
    ids, mask = (each[:sequences] for each in padded_batch(9, 97))
    mask[0, :2] = 0
    compiled = torchport.compile(model, (ids,), target="openvino", max_length=64, options=PLAIN)
    arguments = {**GREEDY, "attention_mask": mask}
    expected = model.generate(ids, **arguments)
    assert torch.equal(compiled.generate(ids, **arguments), expected)
    assert (compiled.fallbacks.fallbacks, len(compiled.generation_programs)) == (0, 1)
    torchport.save(compiled, tmp_path / "llama.pt2")
    assert torch.equal(torchport.load(tmp_path / "llama.pt2").generate(ids, **arguments), expected)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("mistral", marks=pytest.mark.conformance),
        "gemma2",
        pytest.param("bloom", marks=pytest.mark.conformance),
    ],
)
def test_models_with_windows_and_other_masks(kind):
    model = small_causal(kind)
    ids = torch.randint(3, 90, (1, 40), generator=torch.Generator().manual_seed(3))
    compiled = torchport.compile(model, (ids,), target="openvino", max_length=96, options=PLAIN)
    assert torch.equal(compiled.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    assert compiled.fallbacks.fallbacks == 0


def test_threads_have_states_of_their_own():
    compiled, model, _ = shared_llama()
    prompts = [torch.randint(3, 97, (1, size)) for size in (4, 11, 7, 20)]
    expected = [model.generate(ids, **GREEDY) for ids in prompts]
    found = [None] * len(prompts)

    def generate(place):
        found[place] = compiled.generate(prompts[place], **GREEDY)

    threads = [threading.Thread(target=generate, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_a_file_holds_caches_too(fills, tmp_path):
    compiled, model, ids = shared_llama()
    torchport.save(compiled, tmp_path / "llama.pt2")
    loaded = torchport.load(tmp_path / "llama.pt2")
    fills.clear()
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))
    assert fills == ([0] if IS_X86 else [])
    logits, cache = loaded.prefill(ids)
    tokens = [logits.argmax(-1)]
    for _ in range(5):
        tokens.append(loaded.step(tokens[-1], cache).argmax(-1))
    expected = model.generate(ids, **{**GREEDY, "max_new_tokens": 6})
    assert torch.equal(torch.stack(tokens, 1), expected[:, ids.shape[1] :])


def test_a_model_of_which_no_kernel_is_made_is_compiled_as_before(monkeypatch, fills):
    monkeypatch.setattr(stateful_caches.HeldCaches, "uses_attention_kernel", lambda self, compiled: False)
    compiled, _, _ = compiled_llama(num_hidden_layers=1)
    assert fills == []
    assert compiled.fallbacks.fallbacks == 0


def test_a_cache_that_is_read_for_something_else_is_not_held(monkeypatch):
    seen = []

    def noted(model, sums):
        seen.append((model.clone(), sums))

    monkeypatch.setattr(compile_model, "hold_caches", noted)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    compiled_llama()
    model, sums = seen[-1]
    held = stateful_caches.hold_caches(model, sums)
    assert held is not None
    assert (held.attentions, len(held.caches), len(held.model.get_sinks())) == (2, 4, 4)
    opset = openvino().opset13
    cache = model.get_parameters()[held.caches[2].given]
    total = opset.reduce_sum(cache, opset.constant([0, 1, 2, 3]), False)
    results = [openvino().opset13.result(total), *model.get_results()]
    otherwise = openvino().Model(results, model.get_parameters(), "otherwise")
    assert stateful_caches.hold_caches(otherwise, sums) is None
