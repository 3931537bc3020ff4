"""Where a rounded number, a dropped op or a mixed-up weight would give another result than eager torch's."""

import math

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from targets.ttnn.programs import compiled_for, random
from torchport.targets.ttnn.float32_values import mark_deciding_values
from torchport.targets.ttnn.load import _without_overflow
from torchport.targets.ttnn.lowering import IN_FLOAT32, finite_in

LEAST = torch.finfo(torch.float32).min
EXTREME = torch.tensor([LEAST, -LEAST, -math.inf, math.inf, 1.0])
MASK = torch.tensor([True, False, True, False, False])


def assert_equal(function, *args, tolerance=1e-2, **options):
    """Fail unless a function, all of whose ops run on the device, gives eager torch's results."""
    compiled = compiled_for(function, *args, **options)
    assert compiled.coverage.ops_remain == 0, [row.detail for row in compiled.coverage.stayed]
    with torch.no_grad():
        results, expected = compiled(*args), function(*args)
    assert compiled.fallbacks.fallbacks == 0
    for place, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        exact = {} if theirs.is_floating_point() else {"rtol": 0, "atol": 0}
        close = {"rtol": tolerance, "atol": tolerance} | exact
        torch.testing.assert_close(ours, theirs, **close, msg=lambda text, place=place: f"{place}: {text}")


class SharedWeights(nn.Module):
    """Batch norms with the same weights, which differ in other arguments."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(random(4, 4, 3, 3))
        self.mean, self.row = nn.Parameter(random(4)), nn.Parameter(random(4) + 2)
        self.variance = nn.Parameter(random(4).abs() + 0.5)

    def norm(self, x, **more):
        return functional.batch_norm(x, self.mean, self.variance, **more)

    def forward(self, x):
        y, kernel = x + 1, self.kernel
        return (
            self.norm(y),
            self.norm(y, eps=1.0),
            self.norm(y, weight=self.row),
            self.norm(y, bias=self.row),
            self.norm(functional.conv2d(x, kernel)),
            self.norm(functional.conv2d(x, kernel), eps=1.0),
            self.norm(functional.conv2d(x, kernel), weight=self.row),
            self.norm(functional.conv2d(x, kernel), bias=self.row),
            self.norm(functional.conv2d(x, kernel, self.row)),
            self.norm(functional.conv_transpose2d(x, kernel)),
        )


def test_norms_that_share_weights_are_told_apart():
    assert_equal(SharedWeights().eval(), random(2, 4, 6, 6), dtype="float32", tolerance=1e-3)


def test_what_is_finite_stays_finite_in_bfloat16():
    """`assert_close` compares infinities too."""

    def function(x, hidden, scores):
        return (
            x + 1,
            (x * 1).clamp(LEAST, -LEAST),
            (x * 1).clamp(min=LEAST),
            torch.maximum(x * 1, torch.tensor(LEAST)),
            hidden.float() * LEAST,
            functional.pad(x, (1, 0), value=LEAST),
            x == LEAST,
            scores.masked_fill(hidden, LEAST) == LEAST,
            (scores + hidden.float() * LEAST).softmax(-1),
        )

    assert_equal(function, EXTREME, torch.stack([MASK, torch.ones(5).bool()]), random(2, 5))


@pytest.mark.parametrize("is_rounded", [False, True])
def test_infinite_inputs_stay_infinite(is_rounded):
    given = _without_overflow(EXTREME, is_rounded)
    assert torch.equal(given.isinf(), EXTREME.isinf())
    assert torch.equal(given.bfloat16().isinf(), EXTREME.isinf()) is is_rounded


def test_numbers_that_are_not_finite_stay_so():
    assert finite_in(math.inf, "bfloat16") == math.inf
    assert math.isnan(finite_in(math.nan, "bfloat16"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_of_a_table_may_be_infinite(dtype):
    table = nn.Embedding.from_pretrained(torch.tensor([[1.0, -math.inf], [math.inf, LEAST], [-LEAST, 3.0]]))
    assert_equal(lambda i: (table(i) == -math.inf, table(i) + 1), torch.tensor([2, 0, 1]), dtype=dtype)


def test_integers_and_booleans_are_those_of_eager_torch():
    def function(x, mask):
        few, many = x % 7, x % 100
        return (
            few <= 2.999,  # bfloat16 rounds it to 3
            few == 2.999,
            mask > 0.9999,
            (torch.log(many.float() + 1) * 20).long(),
            (many * 0.37).int() + 1,
            ((many.float() + 0.9) * few).long(),
            (many * 0.3).floor(),
            functional.pad(~mask, (1, 1), value=2).long(),
            (~mask).masked_fill(mask, 3).long(),
            torch.full_like(mask, 5).long() + mask.long(),
        )

    compiled, args = compiled_for(function, torch.arange(200), MASK), (torch.arange(200), MASK)
    for place, (ours, theirs) in enumerate(zip(compiled(*args), function(*args), strict=True)):
        assert torch.equal(ours, theirs), place


def test_only_values_that_decide_become_float32():
    """Positions and scores become integers; a product that a matrix product has rounded does so in vain."""
    graph = fx.Graph()
    names = ("ids", "positions", "scores", "images", "drawn")
    ids, positions, scores, images, drawn = map(graph.placeholder, names)
    aten = torch.ops.aten
    floats = [graph.call_function(aten._to_copy.default, (node,)) for node in (ids, positions)]
    product = graph.call_function(aten.mul.Tensor, (floats[1], scores))
    rounded = graph.call_function(aten.mm.default, (images, images))
    casts = [graph.call_function(aten._to_copy.default, (node,)) for node in (product, rounded)]
    chances = graph.call_function(aten.rand.default, ([5, 5],))
    graph.call_function(aten.lt.Scalar, (chances, 0.9))
    graph.call_function(aten.lt.Tensor, (drawn, images))
    for node in graph.nodes:
        dtype = torch.int64 if node in (ids, positions, *casts) else torch.float32
        node.meta["val"] = torch.empty(5, 5, dtype=dtype, device="meta")
    mark_deciding_values(graph)
    marked = {node for node in graph.nodes if node.meta.get(IN_FLOAT32)}
    assert marked == {positions, scores, floats[1], product, chances}


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: x * (0.5 + torch.rand(x.shape)).floor(),
        lambda x: x * (torch.rand(x.shape) < 0.3),
        lambda x: torch.where(torch.rand(x.shape) * 3 > x.new_tensor(1.1), x, 0),
        lambda x: x * torch.randn(x.shape).abs().ge(0.7).float(),
    ],
)
def test_random_numbers_drop_what_they_drop_in_eager_torch(drop):
    x = random(100, 400) + 5
    compiled = compiled_for(lambda x: (drop(x),), x)
    torch.manual_seed(1)
    [dropped] = compiled(x)
    torch.manual_seed(1)
    assert torch.equal(dropped == 0, drop(x) == 0)
    assert compiled.coverage.ops_before > compiled.coverage.ops_remain
    assert compiled.fallbacks.fallbacks == 0


def test_an_activation_is_applied_to_a_product_with_any_bias():
    def function(x, y, *biases):
        return [torch.addmm(bias, x, y).relu() for bias in biases]

    biases = [random(*shape) for shape in ((), (3, 1), (3, 7), (7,))]
    assert_equal(function, random(3, 5), random(5, 7), *biases, dtype="float32", tolerance=1e-4)
