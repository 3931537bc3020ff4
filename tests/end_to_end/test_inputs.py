"""Inputs of every shape, dtype, layout and class."""

import collections
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache

import torchport

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 1.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x))) + 1


def test_a_new_batch_size_and_a_new_resolution(bring_up):
    model = Net().eval()
    compiled = bring_up(model, torch.randn(1, 3, 8, 8))
    for shape in ((1, 3, 8, 8), (3, 3, 8, 8), (2, 3, 6, 10), (1, 3, 8, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_new_sequence_length(bring_up):
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.places = nn.Embedding(16, 8)

        def forward(self, ids):
            x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)

    model = Language().eval()
    compiled = bring_up(model, torch.zeros(1, 4, dtype=torch.int64))
    for length in (4, 7, 1, 16, 4):
        ids = torch.randint(0, 20, (2, length))
        torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.float16,
        torch.bfloat16,
        torch.int16,
        torch.uint8,
    ],
)
def test_other_dtypes_are_computed_in_their_own_precision(dtype, bring_up):
    def model(x):
        return x * x + x.flip(0) * 3

    x = torch.tensor([1, 2, 3]).to(dtype) + (1e-9 if dtype == torch.float64 else 0)
    result = bring_up(model, x)(x)
    assert result.dtype == dtype
    torch.testing.assert_close(result, model(x), rtol=0, atol=0)


def test_float64_models_are_not_computed_in_float32(bring_up):
    model, x = nn.Linear(4, 4).double().eval(), torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(bring_up(model, x)(x), model(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "shape", [(), (0,), (0, 3), (1,)], ids=lambda shape: "x".join(map(str, shape)) or "number"
)
def test_empty_tensors_and_single_numbers(shape, bring_up):
    def model(x):
        return torch.relu(x) * 2, x.sum(), torch.cat([x.reshape(-1), x.reshape(-1)]), x.exp() + 1

    x = torch.randn(shape)
    torch.testing.assert_close(bring_up(model, x)(x), model(x))


LAYOUTS = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "strided": lambda: torch.randn(4, 12)[:, ::2],
    "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    "overlapping": lambda: torch.randn(24).as_strided((4, 6), (1, 2)),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_inputs_that_are_not_contiguous(make, bring_up):
    def model(x):
        return F.relu(x) * 2, x.softmax(0), x.t() + 1

    compiled = bring_up(model, torch.randn(4, 6))
    for x in (make(), torch.randn(4, 6)):
        ours, theirs = compiled(x), model(x)
        torch.testing.assert_close(ours, theirs)
        assert [tensor.stride() for tensor in ours] == [tensor.stride() for tensor in theirs]


def test_channels_last(bring_up):
    model = Net().eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    compiled = bring_up(model, x)
    for each in (x, x.contiguous(), x):
        ours, theirs = compiled(each), model(each)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert ours.stride() == theirs.stride()


def test_keyword_inputs_in_any_order(bring_up):
    def model(a, b=None, *, c=None):
        return a - (0 if b is None else b) * 2 + (0 if c is None else c)

    a, b, c = torch.randn(3), torch.randn(3), torch.randn(3)
    compiled = bring_up(model, a, b, c=c)
    calls = [((a, b), {"c": c}), ((a,), {"c": c, "b": b}), ((a,), {}), ((a, None), {"c": c})]
    for args, kwargs in calls:
        torch.testing.assert_close(compiled(*args, **kwargs), model(*args, **kwargs))


def test_nested_inputs(bring_up):
    def model(batch, pair, options):
        return batch.x * batch.scale + pair.left + options["more"][0] * options["n"]

    def inputs(scale=1.0, n=2):
        return Batch(torch.randn(3), scale), Pair(torch.randn(3), None), {"more": [torch.randn(3)], "n": n}

    compiled = bring_up(model, *inputs())
    for args in (inputs(), inputs(scale=2.0), inputs(n=5), inputs()):
        torch.testing.assert_close(compiled(*args), model(*args))


def test_a_changed_number_does_not_reuse_the_old_program(bring_up):
    def model(x, factor, flag=False, mode="sum", nothing=None):
        x = x * factor if nothing is None else x + nothing
        x = -x if flag else x
        return x.sum() if mode == "sum" else x.mean()

    x = torch.randn(4)
    compiled = bring_up(model, x, 2)
    for rest in ((2,), (3,), (2.5,), (2, True), (2, False, "mean"), (2, False, "sum", 1), (True,), (2,)):
        torch.testing.assert_close(compiled(x, *rest), model(x, *rest))


def test_the_sign_of_zero_is_a_change(target):
    compiled = torchport.compile(lambda x, y: x / y, (torch.ones(2), 0.0), target=target)
    assert compiled(torch.ones(2), 0.0).tolist() == [float("inf")] * 2
    assert compiled(torch.ones(2), -0.0).tolist() == [-float("inf")] * 2


def test_a_model_of_no_tensor_inputs(target):
    compiled = torchport.compile(lambda n: torch.arange(4) * n, (3,), target=target)
    assert compiled(3).tolist() == [0, 3, 6, 9]
    assert compiled(5).tolist() == [0, 5, 10, 15]


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, cache):
        keys, values = cache.update(self.key(x), self.value(x), 0)
        return F.scaled_dot_product_attention(x, keys, values), cache


def test_a_cache_that_the_model_updates_is_updated_for_the_caller(target):
    model = Decoder().eval()
    compiled = torchport.compile(model, (torch.randn(1, 2, 3, 4), DynamicCache()), target=target)
    ours, theirs = DynamicCache(), DynamicCache()
    for length in (3, 1, 1, 2):  # each step reads what the previous ones left in the cache
        x = torch.randn(1, 2, length, 4)
        result, cache = compiled(x, ours)
        expected, _ = model(x, theirs)
        torch.testing.assert_close(result, expected.detach(), rtol=1e-4, atol=1e-4)
        assert cache is ours
        assert ours.get_seq_length() == theirs.get_seq_length()
        torch.testing.assert_close(ours.layers[0].keys, theirs.layers[0].keys.detach())


def test_containers_that_the_model_changes_are_changed_for_the_caller(target):
    def model(x, seen, notes):
        seen.append(x * 2)
        notes["last"] = seen[0] + x
        notes.pop("old")
        return seen

    compiled = torchport.compile(model, (torch.ones(2), [torch.ones(2)], {"old": 1}), target=target)
    first = torch.zeros(2)
    seen, notes = [first], {"old": 1}
    assert compiled(torch.full((2,), 3.0), seen, notes) is seen
    assert seen[0] is first
    assert seen[1].tolist() == [6.0, 6.0]
    assert notes.keys() == {"last"}
    assert notes["last"].tolist() == [3.0, 3.0]


def test_under_autocast(target):
    model, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    compiled = torchport.compile(model, (x,), target=target)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ours, theirs = compiled(x), model(x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    assert compiled(x).dtype == torch.float32


class PartlyCast(nn.Module):
    """Computes its second half without autocast."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        with torch.autocast("cpu", enabled=False):
            x = self.second(x.float())
            return x @ x.mT


@pytest.mark.parametrize("way", ["torchport.compile", "torch.compile"])
def test_what_leaves_autocast_is_not_cast(way, target):
    model, x = PartlyCast().eval(), torch.randn(2, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        if way == "torch.compile":
            compiled = torch.compile(model, backend="torchport", options={"target": target})
        else:
            compiled = torchport.compile(model, (x,), target=target)
        ours, theirs = compiled(x), model(x)
    assert ours.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_in_inference_mode(bring_up):
    model, x = nn.Linear(3, 3).eval(), torch.randn(2, 3)
    with torch.inference_mode():
        compiled = bring_up(model, x)
        torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled(x), model(x))


def test_inputs_and_results_can_be_resized_afterwards(bring_up):
    model, x = nn.Sequential(nn.Linear(4, 200), nn.ReLU()), torch.randn(200, 4)
    compiled = bring_up(model, x)
    result = compiled(x)
    assert x.untyped_storage().resizable()
    assert result.untyped_storage().resizable()
