"""Attention as products and a softmax."""

import math

import pytest
import torch
import torch.nn.functional as F

from torchport.targets.openvino.library import core, openvino
from torchport.targets.openvino.written_attention import write_attention

FEATURES, TOKENS, SEEN = 16, 5, 7


def model(mask, scale, dtype, *, causal=False):
    """Attention of queries to keys and values, in this dtype."""
    opset, kind = openvino().opset13, getattr(openvino().Type, dtype)
    inputs = [opset.parameter([2, 3, -1, FEATURES], kind) for _ in range(3)]
    arguments = list(inputs)
    if mask is not None:
        inputs.append(opset.parameter([1, 1, -1, -1], openvino().Type.boolean if mask == "bool" else kind))
        arguments.append(inputs[-1])
    if scale is not None:
        arguments += [opset.constant(0.0, kind)] if mask is None else []
        arguments.append(opset.constant(scale, kind))
    attention = opset.scaled_dot_product_attention(*arguments, causal=causal)
    attention.set_friendly_name("attention")
    return openvino().Model([opset.convert(attention, "f32")], inputs, "model")


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
    # The scale that is not given would be rounded to bfloat16.
    stays = dtype == "bf16" and scale is None
    assert ("ScaledDotProductAttention" in types(made)) == stays
    wide = [tensor.float() for tensor in tensors]
    mask_given = seen.float() if mask == "float" else seen
    expected = F.scaled_dot_product_attention(*wide, attn_mask=mask_given, scale=scale)
    found = run(made, tensors if seen is None else [*tensors, seen])
    allowed = 1e-5 if dtype == "f32" else 1e-2  # on a processor with bfloat16 it is rounded in between
    torch.testing.assert_close(found, expected, rtol=allowed, atol=allowed)


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
