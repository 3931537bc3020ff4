"""Large integers, indices out of range, NaN and infinity: handled as in eager torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

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


MAKES_NAN = {
    "relu of a root": (lambda x: torch.relu(torch.sqrt(x)), 3),
    "maximum of 0/0": (lambda x: (x / (x * 0)).amax(0), 3),
    "clamp of a reciprocal of 0 times 0": (lambda x: (torch.reciprocal(x * 0) * 0).clamp(-1, 1), 3),
    "comparison": (lambda x: torch.acos(x) > 0, 3),
    "to integers": (lambda x: (torch.rsqrt(x) * 0).nan_to_num(7.0).to(torch.int64), 3),
    "max pooling": (lambda x: F.max_pool2d(torch.sqrt(x).reshape(1, 1, 1, 3), (1, 2), 1), 3),
    "softmax by hand, then relu": (lambda x: torch.relu(torch.exp(x * 100) / torch.exp(x * 100).sum()), 3),
    "far behind": (lambda x: F.gelu((torch.sqrt(x)[None] @ torch.ones(3, 4)).relu().softmax(-1)), 3),
    "maximum with a number": (lambda x: torch.maximum(torch.sqrt(x), torch.ones(3)), 3),
    "a power": (lambda x: torch.relu(x**0.5 + x**-1), 3),
    "variance of one": (lambda x: torch.relu(x[:1].var(0)), 3),
    "silu": (lambda x: F.silu(torch.sqrt(x)).sigmoid().tanh(), 3),
}


@pytest.mark.parametrize("case", MAKES_NAN)
def test_a_nan_that_arises_inside_an_island_is_kept(case, bring_up):
    function, count = MAKES_NAN[case]
    compiled = bring_up(function, torch.linspace(0.1, 0.9, count))
    for x in (torch.tensor([-4.0, 1.0, 0.0]), torch.tensor([0.25, 0.5, 1.0]), torch.tensor([1.0, 2.0, 9e9])):
        torch.testing.assert_close(compiled(x), function(x), equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, keep: torch.softmax(x.masked_fill(~keep, -INF), -1),
        lambda x, keep: torch.softmax(torch.where(keep, x, torch.tensor(-INF)), -1) @ x.T,
        lambda x, keep: torch.log_softmax(x + torch.zeros(x.shape).masked_fill(~keep, -INF), -1).amax(-1),
    ],
    ids=["masked_fill", "where", "log_softmax"],
)
def test_softmax_of_nothing(function, bring_up):
    x, keep = torch.randn(2, 3), torch.tensor([[True, False, True], [True, True, False]])
    compiled = bring_up(function, x, keep)
    torch.testing.assert_close(compiled(x, keep), function(x, keep))
    keep[1] = False
    torch.testing.assert_close(compiled(x, keep), function(x, keep), equal_nan=True)


def test_softmax_of_an_input_that_is_minus_infinity(bring_up):
    compiled = bring_up(lambda x: torch.softmax(x, -1), torch.ones(2, 3))
    for row in ([-INF, 1.0, 2.0], [-INF, -INF, -INF], [INF, 0.0, 1.0]):
        x = torch.tensor([row, [1.0, 2.0, 3.0]])
        torch.testing.assert_close(compiled(x), torch.softmax(x, -1), equal_nan=True)


EXTREMES = {
    "amax": lambda x: x.amax(-1),
    "amax of all": lambda x: x.amax(),
    "amin": lambda x: x.amin(-1),
    "max_pool2d": lambda x: F.max_pool2d(x[None], (1, 3)),
    "masked": lambda x: x.masked_fill(x > 0, -INF).amax((0, 1)),
    "difference": lambda x: torch.relu(x - x.amax(-1, keepdim=True)),
}


@pytest.mark.parametrize("function", EXTREMES.values(), ids=EXTREMES)
def test_the_largest_and_least_of_nothing_but_infinities(function, bring_up):
    compiled = bring_up(function, torch.randn(2, 3))
    for row in ([-INF, -INF, -INF], [INF, INF, INF], [-INF, 1.0, -INF], [INF, -INF, 0.0]):
        x = torch.tensor([row, row])
        torch.testing.assert_close(compiled(x), function(x), equal_nan=True)


def test_indices_whose_number_is_known_only_at_run_time(bring_up):
    def model(x, table):
        places = (x > 0).nonzero().squeeze(1)
        return table.index_select(0, places), places.cumsum(0), table[places] * 2, places.argmax()

    x, table = torch.tensor([1.0, -1.0, 2.0]), torch.randn(3, 4)
    compiled = bring_up(model, x, table)
    for values in (x, torch.tensor([1.0, 1.0, 1.0]), torch.tensor([-1.0, 5.0, -1.0])):
        torch.testing.assert_close(compiled(values, table), model(values, table))
