"""Attention decomposed into matrix products and a softmax."""

import math

import pytest
import torch
import torch.nn.functional as F

import torchport
from torchport.targets.openvino.decomposed_attention import write_attention
from torchport.targets.openvino.library import core, in_float32, openvino

FEATURES, TOKENS, SEEN = 16, 5, 7


def model(mask, scale, dtype, *, causal=False):
    """Return a model of attention of queries to keys and values in this dtype, computed in float32."""
    opset, kind, single = openvino().opset13, getattr(openvino().Type, dtype), openvino().Type.f32
    inputs = [opset.parameter([2, 3, -1, FEATURES], kind) for _ in range(3)]
    arguments = [in_float32(each) for each in inputs]
    if mask is not None:
        inputs.append(opset.parameter([1, 1, -1, -1], openvino().Type.boolean if mask == "bool" else kind))
        arguments.append(inputs[-1] if mask == "bool" else in_float32(inputs[-1]))
    if scale is not None:
        arguments += [opset.constant(0.0, single)] if mask is None else []
        arguments.append(opset.constant(scale, single))
    attention = opset.scaled_dot_product_attention(*arguments, causal=causal)
    attention.set_friendly_name("attention")
    return openvino().Model([attention], inputs, "model")


def types(made):
    return {node.get_type_name() for node in made.get_ops()}


def run(made, tensors):
    kept, request = [], core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request = request.create_infer_request()
    for index, tensor in enumerate(tensors):
        if tensor.dtype is torch.bfloat16:
            kept.append(tensor.view(torch.int16).numpy().view("uint16"))
            given = openvino().Tensor(kept[-1], list(tensor.shape), openvino().Type.bf16)
        else:
            given = openvino().Tensor(tensor.numpy())
        kept.append(given)
        request.set_input_tensor(index, given)
    request.infer()
    return torch.from_numpy(request.get_output_tensor(0).data.copy())


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("scale", [None, 0.25])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_it_is_what_torch_computes(mask, scale, dtype):
    kind = torch.float32 if dtype == "f32" else torch.bfloat16
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, size, FEATURES).to(kind) for size in (TOKENS, SEEN, SEEN)]
    seen = {
        "bool": torch.rand(1, 1, TOKENS, SEEN) > 0.3,
        "float": torch.randn(1, 1, TOKENS, SEEN).to(kind),
    }.get(mask)
    made = model(mask, scale, dtype)
    write_attention(made)
    assert "ScaledDotProductAttention" not in types(made)
    wide = [tensor.float() for tensor in tensors]
    mask_given = seen.float() if mask == "float" else seen
    expected = F.scaled_dot_product_attention(*wide, attn_mask=mask_given, scale=scale)
    found = run(made, tensors if seen is None else [*tensors, seen])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_keys_are_neither_scaled_nor_transposed():
    made = model("bool", 1 / math.sqrt(FEATURES), "f32")
    write_attention(made)
    key = made.inputs[1].get_node()
    [reader] = [target.get_node() for target in key.output(0).get_target_inputs()]
    assert (reader.get_type_name(), reader.get_attributes()["transpose_b"]) == ("MatMul", True)
    assert any(node.get_friendly_name() == "attention" for node in made.get_ops())


def test_attention_with_a_causal_mask_of_its_own_stays():
    made = model(None, None, "f32", causal=True)
    write_attention(made)
    assert "ScaledDotProductAttention" in types(made)


HEADS, SLOTS = 6, 12


def cached(shared, count, *, dtype="f32", slots=SLOTS):
    """Return attention to a cache into which new rows are copied; query heads share the cache's heads.

    It computes in float32.
    """
    opset, kind = openvino().opset13, getattr(openvino().Type, dtype)

    def integer(value):
        return opset.constant(value, openvino().Type.i64)

    query = opset.parameter([2, HEADS, count, FEATURES], kind)
    caches = [opset.parameter([2, shared, slots, FEATURES], kind) for _ in range(2)]
    new = [opset.parameter([2, shared, count, FEATURES], kind) for _ in range(2)]
    mask = opset.parameter([1, 1, count, slots], openvino().Type.boolean)
    start = opset.parameter([], openvino().Type.i64)
    made = opset.gather(opset.shape_of(new[0]), integer(2), integer(0))
    numbers = opset.add(opset.range(integer(0), made, integer(1), "i64"), start)
    size = opset.gather(opset.shape_of(caches[0]), integer(2), integer(0))
    indices = opset.floor_mod(numbers, size)
    merged = [
        opset.scatter_update(cache, indices, rows, integer(2))
        for cache, rows in zip(caches, new, strict=True)
    ]
    if shared != HEADS:
        merged = [_repeated(each, shared, integer) for each in merged]
    scale, wide = opset.constant(0.25, openvino().Type.f32), [in_float32(each) for each in (query, *merged)]
    attention = opset.scaled_dot_product_attention(*wide, mask, scale)
    attention.set_friendly_name("attention")
    return openvino().Model([attention], [query, *caches, *new, mask, start], "model")


def _repeated(value, shared, integer):
    opset, times = openvino().opset13, HEADS // shared
    size = opset.unsqueeze(opset.gather(opset.shape_of(value), integer(2), integer(0)), integer(0))
    apart = opset.concat([integer([2]), integer([shared]), integer([times]), size, integer([FEATURES])], 0)
    joined = opset.concat([integer([2]), integer([HEADS]), size, integer([FEATURES])], 0)
    return opset.reshape(opset.broadcast(opset.unsqueeze(value, integer(2)), apart), joined, False)


def tensors_of(shared, count, start, dtype=torch.float32):
    torch.manual_seed(1)
    query = torch.randn(2, HEADS, count, FEATURES).to(dtype)
    rows = [torch.randn(2, shared, size, FEATURES).to(dtype) for size in (SLOTS, SLOTS, count, count)]
    mask = torch.arange(SLOTS) <= start + torch.arange(count)[:, None]
    return [query, *rows, mask[None, None], torch.tensor(start)]


def attention_of(tensors, places):
    query, keys, values, new_keys, new_values, mask, _ = tensors
    keys, values = (
        cache.float().index_copy(2, places, rows.float()).repeat_interleave(HEADS // cache.shape[1], 1)
        for cache, rows in ((keys, new_keys), (values, new_values))
    )
    return F.scaled_dot_product_attention(query.float(), keys, values, attn_mask=mask, scale=0.25)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shared", [HEADS, 2, 1])
def test_a_cache_is_read_as_it_is(shared, count, is_open, dtype):
    kind = torch.float32 if dtype == "f32" else torch.bfloat16
    sizes = {"count": -1, "slots": -1} if is_open else {"count": count}
    made = cached(shared, dtype=dtype, **sizes)
    write_attention(made)
    for name in made.inputs[1:3]:  # neither copied nor repeated
        readers = {target.get_node().get_type_name() for target in name.get_target_inputs()}
        assert readers <= {"MatMul", "ShapeOf", "Convert"}
    for start in (0, 5, SLOTS - count):
        tensors = tensors_of(shared, count, start, kind)
        expected = attention_of(tensors, torch.arange(count) + start)
        torch.testing.assert_close(run(made, tensors), expected, rtol=1e-5, atol=1e-5)


def test_a_cache_is_copied_for_many_new_rows():
    made = cached(HEADS, 65, slots=80)
    write_attention(made)
    readers = {target.get_node().get_type_name() for target in made.inputs[1].get_target_inputs()}
    assert "ScatterUpdate" in readers


def test_a_cache_of_a_language_model_is_read_as_it_is(monkeypatch):
    transformers = pytest.importorskip("transformers")
    seen = []

    def noted(model):
        write_attention(model)
        caches = [each for each in model.inputs if each.get_partial_shape().rank.get_length() == 4]
        seen.append(
            {target.get_node().get_type_name() for each in caches for target in each.get_target_inputs()}
        )

    monkeypatch.setattr("torchport.targets.openvino.compile_model.write_attention", noted)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model, ids = transformers.LlamaForCausalLM(config).eval(), torch.tensor([[5, 17, 3]])
    settings = {"max_new_tokens": 12, "do_sample": False}
    compiled = torchport.compile(
        model, (ids,), target="openvino", max_length=300, options={"cache": False, "speed_trial": False}
    )
    assert torch.equal(compiled.generate(ids, **settings), model.generate(ids, **settings))
    assert seen
    assert all("ScatterUpdate" not in each for each in seen)
