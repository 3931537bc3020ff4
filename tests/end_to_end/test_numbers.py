"""Integers that are large, indices that are wrong, NaN and infinity: as eager torch has them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport

NAN, INF = float("nan"), float("inf")


def test_int64_values_beyond_32_bits(bring_up):
    def model(i):
        return i + 1, i * 3, i > 5, i == 2**33 + 7, i.flip(0), -i, i.clamp(0, 2**40)

    compiled = bring_up(model, torch.tensor([1, 2, 3]))
    for value in (4, 2**31 - 1, 2**31, 2**33 + 7, 2**53 + 1, -(2**40), 2**62):
        ids = torch.tensor([value, 5, -1])
        torch.testing.assert_close(compiled(ids), model(ids), rtol=0, atol=0)


def test_small_integers_that_grow_inside_the_model(bring_up):
    def model(i):
        big = i * 2**20
        return big > 5, big.float(), torch.rsub(i, 0, alpha=2**20), i.cumsum(0) * i.sum() * 2**10, i < 2**40

    compiled = bring_up(model, torch.tensor([1, 2, 3]))
    ids = torch.tensor([2**12, 1, 0])
    torch.testing.assert_close(compiled(ids), model(ids), rtol=0, atol=0)


def test_int32_overflows_as_in_torch(bring_up):
    x = torch.tensor([2**31 - 1, 3], dtype=torch.int32)
    compiled = bring_up(lambda x: (x + x, x * x), x)
    torch.testing.assert_close(compiled(x), (x + x, x * x), rtol=0, atol=0)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids):
        return torch.relu(self.table(ids)).sum(-1)


def test_an_index_that_is_out_of_range_raises_as_in_torch(bring_up):
    model = Lookup().eval()
    compiled = bring_up(model, torch.tensor([1, 2]))
    torch.testing.assert_close(compiled(torch.tensor([0, 9])), model(torch.tensor([0, 9])))
    for bad in (10, -1, 2**33, -(2**40)):
        with pytest.raises(IndexError):
            compiled(torch.tensor([3, bad]))
    torch.testing.assert_close(compiled(torch.tensor([9, 0])), model(torch.tensor([9, 0])))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i.clamp(min=0)),
        lambda x, i: x.gather(0, i.clamp(min=0)[:, None]),
        lambda x, i: F.embedding((i + 3).clamp(0, 4), x),
    ],
    ids=["index", "index_select", "gather", "clamped embedding"],
)
def test_indices_within_range_find_what_torch_finds(function, bring_up):
    x = torch.randn(5, 3)
    compiled = bring_up(function, x, torch.tensor([0, 1]))
    for ids in (torch.tensor([4, 0]), torch.tensor([-1, -5])):
        torch.testing.assert_close(compiled(x, ids), function(x, ids))


def activations(x):
    return (
        torch.relu(x), torch.sigmoid(x), torch.tanh(x), F.gelu(x), F.silu(x), x.clamp(-1, 1), torch.sign(x),
        torch.maximum(x, x * 2), x > 0, x == x, torch.where(x > 0, x, -x), x.amax(0), torch.softmax(x, -1),
        F.layer_norm(x, (3,)), x.sum(), F.hardswish(x), F.max_pool2d(x[None, None], 2, 1), torch.exp(x),
    )  # fmt: skip


def test_nan_and_infinity_go_through_as_in_torch(bring_up):
    compiled = bring_up(activations, torch.ones(2, 3))
    for values in ([NAN, 1.0, 2.0], [INF, 1.0, 2.0], [-INF, 1.0, 2.0], [INF, -INF, 2.0], [NAN, INF, -INF]):
        x = torch.tensor([values, [0.0, -1.0, 4.0]])
        torch.testing.assert_close(compiled(x), activations(x), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_nan_that_the_model_makes_and_gives_is_given(bring_up):
    compiled = bring_up(lambda x: torch.sqrt(x) * 2, torch.ones(3))
    x = torch.tensor([4.0, -1.0, 9.0])
    torch.testing.assert_close(compiled(x), torch.sqrt(x) * 2, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_attention_to_nothing_at_all(kind, bring_up):
    def model(x, mask):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x, mask = torch.randn(1, 2, 3, 4), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[..., 1, :] = False
    if kind == torch.float32:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -INF)
    torch.testing.assert_close(bring_up(model, x, mask)(x, mask), model(x, mask))
    compiled = bring_up(model, x, torch.ones_like(mask))
    torch.testing.assert_close(compiled(x, mask), model(x, mask))


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.relu(torch.sqrt(x)), lambda x: (x / (x * 0)).amax(0)],
    ids=["relu", "amax"],
)
@pytest.mark.xfail(strict=True, reason="OpenVINO loses a NaN that arises between two ops of one island")
def test_a_nan_that_arises_inside_an_island_is_kept(function):
    compiled = torchport.compile(function, (torch.ones(3),), target="openvino")
    x = torch.tensor([-4.0, -1.0, 0.0])
    torch.testing.assert_close(compiled(x), function(x), equal_nan=True)


@pytest.mark.xfail(strict=True, reason="OpenVINO's softmax of nothing but -inf is uniform, torch's is NaN")
def test_softmax_of_nothing():
    compiled = torchport.compile(lambda x: torch.softmax(x, -1), (torch.ones(3),), target="openvino")
    assert compiled(torch.full((3,), -INF)).isnan().all()
