"""FLOPs compared with hand calculation, two per multiply-add: on the CPU and on meta, in every spelling."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchport
from analysis.quantized_engines import quantized_by_each
from torchport.analysis import cost_of
from torchport.capture import OpCall
from torchport.records import TensorSpec


def flops(model, *args, **options):
    """Return a model's FLOPs, after checking that they are the same without values."""
    cost = torchport.analyze(model, args, **options).cost
    meta = model.to("meta") if isinstance(model, nn.Module) else model
    without = torchport.analyze(meta, [arg.to("meta") for arg in args], **options).cost
    assert (cost.flops, cost.vector_flops, cost.bytes_read) == (
        without.flops,
        without.vector_flops,
        without.bytes_read,
    )
    assert cost.peak == without.peak
    return cost.flops


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        # (2, 4, 8, 8) → side 6; every result takes 4 channels × 3 × 3
        (nn.Conv2d(4, 6, 3), 2 * (2 * 6 * 6 * 6) * (4 * 9)),
        (nn.Conv2d(4, 6, 3, groups=2), 2 * (2 * 6 * 6 * 6) * (2 * 9)),
        (nn.Conv2d(4, 8, 3, groups=4, bias=False), 2 * (2 * 8 * 6 * 6) * 9),
        (nn.Conv2d(4, 6, 3, dilation=2), 2 * (2 * 6 * 4 * 4) * (4 * 9)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), 2 * (2 * 6 * 4 * 4) * (4 * 9)),
        # transposed: every input is multiplied with the filter
        (nn.ConvTranspose2d(4, 6, 3, stride=2), 2 * (2 * 4 * 8 * 8) * (6 * 9)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2), 2 * (2 * 4 * 8 * 8) * (3 * 9)),
    ],
)
def test_convolutions(layer, expected):
    assert flops(layer, torch.ones(2, 4, 8, 8)) == expected


def test_convolutions_of_other_dimensions():
    assert flops(nn.Conv1d(4, 6, 3), torch.ones(2, 4, 8)) == 2 * (2 * 6 * 6) * (4 * 3)
    assert flops(nn.Conv3d(2, 3, 3), torch.ones(1, 2, 5, 5, 5)) == 2 * (3 * 27) * (2 * 27)


def test_a_linear_layer_on_three_dimensions():
    assert flops(nn.Linear(8, 5), torch.ones(2, 3, 8)) == 2 * (2 * 3) * 8 * 5
    assert flops(nn.Linear(8, 5, bias=False), torch.ones(8)) == 2 * 8 * 5


def by_hand(query, key, value):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) @ value


def by_einsum(query, key, value):
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)


def by_bmm(query, key, value):
    query, key, value = (tensor.flatten(0, 1) for tensor in (query, key, value))
    return torch.bmm(torch.baddbmm(torch.zeros(1), query, key.mT).softmax(-1), value)


def by_definition(query, key, value):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query, key, value)


@pytest.mark.parametrize(
    "attention", [F.scaled_dot_product_attention, by_definition, by_hand, by_einsum, by_bmm]
)
def test_attention_in_every_spelling(attention):
    query, key = torch.ones(2, 3, 5, 8), torch.ones(2, 3, 7, 8)
    products = 2 * 3 * 5 * 7 * 8  # products of queries and keys, and as many of scores and values
    assert torchport.analyze(attention, (query, key, key.clone())).cost.flops == 2 * products + 2 * products


def test_attention_whose_heads_share_keys():
    query, key = torch.ones(1, 8, 16, 4), torch.ones(1, 2, 16, 4)
    cost = torchport.analyze(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (query, key, key.clone())
    ).cost
    assert cost.flops == 4 * 8 * 16 * 16 * 4


def test_multi_head_attention():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.ones(3, 5, 8)
    products = 4 * (3 * 5 * 8 * 8) + 2 * (3 * 5 * 5 * 8)  # four projections, scores and values
    for mode in (True, False):
        assert torchport.analyze(layer.train(mode), (x, x, x)).cost.flops == 2 * products


@pytest.mark.parametrize(
    ("layer", "weights"),
    [
        (nn.LSTM(4, 5), 4 * 5 * (4 + 5)),
        (nn.LSTM(4, 5, bias=False), 4 * 5 * (4 + 5)),
        (nn.LSTM(4, 5, 2, bidirectional=True), 2 * 4 * 5 * (4 + 5) + 2 * 4 * 5 * (10 + 5)),
        (nn.LSTM(4, 5, proj_size=3), 4 * 5 * (4 + 3) + 3 * 5),
        (nn.GRU(4, 5), 3 * 5 * (4 + 5)),
        (nn.RNN(4, 5), 5 * (4 + 5)),
    ],
)
def test_recurrent_layers_use_every_weight_at_every_step(layer, weights):
    assert flops(layer, torch.ones(7, 2, 4)) == 2 * (7 * 2) * weights


def test_the_matrix_products_of_a_transformer_of_four_blocks():
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    block = 4 * (128 * 64 * 64) + 2 * (128 * 64 * 256) + 2 * (128 * 128 * 64)
    assert 2 * 4 * block == 67_108_864
    assert flops(model.eval(), torch.ones(1, 128, 64)) == 67_108_864


def test_a_look_up_computes_nothing_and_a_norm_does():
    assert flops(nn.Embedding(100, 8), torch.zeros(3, dtype=torch.long)) == 0
    cost = torchport.analyze(nn.Embedding(100, 8), (torch.zeros(3, dtype=torch.long),)).cost
    assert cost.vector_flops == 0
    norm = torchport.analyze(nn.LayerNorm(8), (torch.ones(2, 3, 8),)).cost
    # the mean, the difference, its square, their sum; the difference, 1/σ, scale and shift
    assert (norm.flops, norm.vector_flops) == (0, 8 * 2 * 3 * 8)
    assert torchport.analyze(torch.relu, (torch.ones(5),)).cost.vector_flops == 5
    assert torchport.analyze(lambda x: x.softmax(-1), (torch.ones(5),)).cost.vector_flops == 5 * 5
    assert torchport.analyze(lambda x: x.view(5, 1).clone(), (torch.ones(5),)).cost.vector_flops == 0


def test_integer_arithmetic_counts_no_flops():
    assert torchport.analyze(lambda x: x + x, (torch.arange(5),)).cost.vector_flops == 0


def test_the_backward_pass():
    layer = nn.Linear(8, 5)
    forward = 2 * 3 * 8 * 5
    cost = torchport.analyze(layer, (torch.ones(3, 8),), backward=True).cost
    assert (cost.flops, cost.backward_flops) == (2 * forward, forward)  # only the weight's gradient
    wanted = torchport.analyze(layer, (torch.ones(3, 8, requires_grad=True),), backward=True).cost
    assert (wanted.flops, wanted.backward_flops) == (3 * forward, 2 * forward)


def test_the_backward_pass_of_a_convolution_and_of_attention():
    layer = nn.Conv2d(4, 6, 3, groups=2)
    forward = 2 * (2 * 6 * 6 * 6) * (2 * 9)
    x = torch.ones(2, 4, 8, 8, requires_grad=True)
    assert torchport.analyze(layer, (x,), backward=True).cost.backward_flops == 2 * forward
    query = torch.ones(1, 2, 5, 8, requires_grad=True)
    cost = torchport.analyze(F.scaled_dot_product_attention, (query, query, query), backward=True).cost
    # the scores again, and the gradients of scores, values, queries and keys
    assert cost.backward_flops == 5 * 2 * (2 * 5 * 5 * 8)


@pytest.mark.filterwarnings("ignore")
def test_quantized_products_count_too():
    def quantize():
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), {nn.Linear})

    for name, quantized in quantized_by_each(quantize, torch.ones(2, 4)):
        cost = torchport.analyze(quantized, (torch.ones(2, 4),)).cost
        assert (cost.flops, cost.uncounted) == (2 * 2 * 4 * 8, {}), name


@pytest.mark.filterwarnings("ignore")
def test_quantized_transposed_convolutions_count_too():
    x = torch.rand(1, 6, 5, 5)

    def quantize():
        model = torch.ao.quantization.QuantWrapper(nn.ConvTranspose2d(6, 8, 3)).eval()
        model.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack")
        prepared = torch.ao.quantization.prepare(model)
        prepared(x)
        return torch.ao.quantization.convert(prepared)

    for name, quantized in quantized_by_each(quantize, x):
        cost = torchport.analyze(quantized, (x,)).cost
        assert (cost.flops, cost.uncounted) == (2 * (6 * 5 * 5) * (8 * 9), {}), name


def test_a_packed_weight_that_cannot_be_unpacked_is_named_or_not_needed():
    x, row = TensorSpec((2, 4), "float32"), TensorSpec((2, 8), "float32")
    arguments = {"X": x, "W_prepack": "LinearPackedParamsBase"}
    assert (
        cost_of(OpCall(torch.ops.quantized.linear_dynamic.default, arguments, (row,))).flops == 2 * 2 * 4 * 8
    )
    image = TensorSpec((1, 3, 8, 8), "quint8")
    arguments = {"qx": image, "packed_weight": "Conv2dPackedParamsBase"}
    assert not cost_of(OpCall(torch.ops.quantized.conv2d.new, arguments, (image,))).known


def test_an_op_that_nobody_knows_is_named():
    @torch.library.custom_op("torchport_tests::secret", mutates_args=())
    def secret(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    secret.register_fake(torch.empty_like)
    cost = torchport.analyze(lambda x: secret(x), (torch.ones(3),)).cost
    assert cost.uncounted == {"torchport_tests.secret.default": 1}
    assert (cost.bytes_read, cost.bytes_written) == (12, 12)


def test_ops_that_call_functions_are_named():
    def either(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    assert torchport.analyze(either, (torch.ones(3),)).cost.uncounted == {"cond": 1}


def test_sparse_products_are_not_counted_and_named():
    cost = torchport.analyze(torch.sparse.mm, (torch.eye(4).to_sparse(), torch.ones(4, 4))).cost
    assert list(cost.uncounted) == ["aten._sparse_mm.default"]


def test_a_bilinear_layer_is_not_counted_and_named():
    cost = torchport.analyze(nn.Bilinear(3, 4, 5), (torch.ones(2, 3), torch.ones(2, 4))).cost
    assert list(cost.uncounted) == ["aten._trilinear.default"]
