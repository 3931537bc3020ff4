"""Where an island could lose NaN, and which values are watched: very few in typical models."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from targets.graphs import island_of
from torchport.targets.openvino.nan_walk import SMALL, Condition, Island
from torchport.targets.openvino.watches import find_watches

X = torch.randn(2, 3, 8, 8)
INF, NAN = float("inf"), float("nan")


def watched(model, *args):
    """Return what is watched inside a model, the inputs that must be small, and those that must be finite."""
    island = island_of(model, *args).graph_module
    watches, finite = find_watches(island)
    inputs = [node for node in island.graph.nodes if node.op == "placeholder"]
    small = [inputs.index(watch.node) for watch in watches if watch.node in inputs]
    inside = [watch for watch in watches if watch.node not in inputs]
    return [(_name(watch.node), watch.condition.name, watch.dims) for watch in inside], small, finite


def _name(node):
    return str(node.target).removeprefix("aten.").partition(".")[0]


class Norm(nn.Module):
    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.relu(x * scale) / x.abs().clamp(min=1e-6).sum(-1, keepdim=True)


class Residual(nn.Module):
    """A network so deep that the bounds of its values overflow float32, like ResNet-50's."""

    def __init__(self, blocks=30):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(self.part(), self.part()) for _ in range(blocks))
        for parameter in self.parameters():
            if parameter.dim() == 4:
                nn.init.constant_(parameter, 1.0)

    @staticmethod
    def part():
        return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return x


def written_norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


NO_RISK = {
    "convolutions": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).eval(),
    "a norm by hand": Norm(),
    "normalize": lambda x: F.normalize(x, dim=-1).relu(),
    "layer norm": lambda x: F.gelu(F.layer_norm(x, (8,))),
    "a norm that is written out": lambda x: written_norm(written_norm(x) @ x) @ x,
    "a norm by division": lambda x: F.gelu((x / torch.sqrt((x * x).mean((-1, -2), True) + 1e-5)) ** 20),
    "a norm by a power": lambda x: F.gelu(((x**2).mean(-1, True) + 1e-6).pow(-0.5).mul(x) ** 20),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x).relu(),
    "softmax": lambda x: torch.softmax(x @ x.transpose(-1, -2) / 8**0.5, -1).relu(),
    "a finite mask": lambda x: torch.softmax((x @ x).masked_fill(x > 0, torch.finfo(x.dtype).min), -1),
    "a mask of large numbers": lambda x: torch.softmax(x @ x + (x > 0) * torch.finfo(x.dtype).min, -1),
    "rotary": lambda x: torch.softmax(x * torch.cos(x) + x * torch.sin(x), -1) @ x,
    "squeeze and excitation": lambda x: torch.relu(x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    "a sum of products": lambda x: torch.relu((x * x + x) - (x * 3 - x * x)),
}


@pytest.mark.parametrize("case", NO_RISK)
def test_what_models_usually_do_needs_no_watch_but_of_the_input(case):
    inside, small, _ = watched(NO_RISK[case], X)
    assert inside == []
    assert small in ([], [0])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.relu(torch.sqrt(x)), [("sqrt", "FINITE", None)]),
        (lambda x: torch.relu(x / x), [("div", "FINITE", None)]),
        (lambda x: torch.sqrt(x) * 2 + 1, []),  # NaN propagates to the result
        (lambda x: torch.relu(torch.sqrt(x.abs())), []),
        (lambda x: torch.relu(x**-1), []),  # infinite, not NaN
        (lambda x: torch.relu(x**2 + 1), []),
        (lambda x: torch.relu(torch.expm1(x) - torch.expm1(2 * x)), [("sub", "FINITE", None)]),
        (lambda x: torch.relu(x**20 - (x + 1) ** 20), [("sub", "FINITE", None)]),
        (lambda x: torch.relu(x**3 - (x + 1) ** 3), []),  # no overflow if the input is small
        (lambda x: torch.softmax(x.masked_fill(x > 0, -INF), 1), [("masked_fill", "ROWS", (1,))]),
        (lambda x: x.masked_fill(x > 0, -INF).amax((2, 3)), [("masked_fill", "ROWS", (2, 3))]),
        (lambda x: x.relu().masked_fill(x > 0, INF).amax(2), []),
        (lambda x: x.masked_fill(x > 0, INF).amin(2), [("masked_fill", "FINITE", None)]),
        (lambda x: F.max_pool2d(x.masked_fill(x > 0, -INF), 2), [("masked_fill", "FINITE", None)]),
        (lambda x: torch.relu(torch.tensor([INF, 1.0]) * x[..., :2]), [("mul", "FINITE", None)]),
        (lambda x: torch.relu(x.var(0)), []),
        (lambda x: torch.sin(x / (x - 1)), [("div", "FINITE", None)]),
        (lambda x: F.silu(torch.exp(x) * -1), [("mul", "SMALL", None)]),
    ],
    ids=[
        "sqrt",
        "0/0",
        "seen",
        "sqrt of abs",
        "1/0",
        "square",
        "expm1",
        "large powers",
        "small powers",
        "masked softmax",
        "masked amax",
        "amax of inf",
        "masked amin",
        "masked pooling",
        "inf weight",
        "var",
        "sine of infinity",
        "-inf times 0",
    ],
)
def test_a_value_that_could_be_nan_is_watched_where_it_could_get_lost(function, expected):
    assert watched(function, X)[0] == expected


def test_a_mask_may_be_infinite_and_an_image_may_not():
    def model(x, mask):
        return torch.softmax(torch.relu(x) + mask, -1)

    inside, small, finite = watched(model, X, torch.zeros(8, 8))
    assert inside == [("add", "ROWS", (-1,))]
    assert small == []
    assert finite == [0]


def test_the_mask_of_an_attention_may_be_minus_infinity():
    query, key, value = (torch.randn(1, 2, 8, 4) for _ in range(3))
    island = island_of(F.scaled_dot_product_attention, query, key, value, torch.zeros(8, 8)).graph_module
    watches, finite = find_watches(island)
    assert finite == [0, 1, 2]
    assert [(watch.node.name, watch.condition.name) for watch in watches] == [
        ("leaves_0", "SMALL"),
        ("leaves_1", "SMALL"),
        ("leaves_2", "SMALL"),
        ("leaves_3", "NOT_PLUS_INF"),
    ]


def test_of_many_inputs_that_are_alike_the_first_speaks_for_the_others(monkeypatch):
    walks = []
    plain = Island.walk
    monkeypatch.setattr(Island, "walk", lambda self, *args: walks.append(1) or plain(self, *args))
    several = [torch.randn(3, 4) for _ in range(32)]

    def lose(mask, *several):  # infinities in any of `several` become NaN, which is lost
        return [mask + 1, *[torch.relu(each - each.flip(0)) for each in several]]

    _, _, finite = watched(lose, torch.zeros(2, 2), *several)
    assert finite == list(range(1, 33))
    assert len(walks) < 20

    def lose_but_one(first, *several):  # the first differs from the others, which are then bisected
        return [first + 1, *[torch.relu(each - each.flip(0)) for each in several]]

    _, _, finite = watched(lose_but_one, *several)
    assert finite == list(range(1, 32))


def test_a_deep_network_is_watched_at_few_places():
    inside, small, _ = watched(Residual().eval(), torch.randn(1, 8, 6, 6))
    assert small == [0]
    assert {condition for _, condition, _ in inside} == {"SMALL"}
    assert 1 <= len(inside) <= 8  # of 90 ReLUs
    assert {name for name, *_ in inside} == {"relu"}  # their results are in memory anyway


BIG = 3e38
# Functions in which finite numbers give NaN, which the op that follows loses.
ARISES = {
    "expm1": (lambda x, y: torch.expm1(x) - torch.expm1(y), 100.0),
    "power": (lambda x, y: x**20 - y**20, 1000.0),
    "square": (lambda x, y: x * x - y * y, 1e30),
    "sum": (lambda x, y: (x + x) - (y + y), BIG),
    "reduced sum": (lambda x, y: x.sum(-1, keepdim=True) - y.sum(-1, keepdim=True) + x * 0, BIG),
    "mean": (lambda x, y: x.mean(-1, keepdim=True) - y.mean(-1, keepdim=True) + x * 0, BIG),
    "running sum": (lambda x, y: x.cumsum(-1) - y.cumsum(-1), BIG),
    "variance": (lambda x, y: (x * torch.arange(4.0)).var(-1, keepdim=True) - (y * y) + x * 0, 1e25),
    "product": (lambda x, y: x @ x.mT @ x - y @ y.mT @ y, 1e30),
    "weights": (lambda x, y: x @ torch.ones(4, 4) - y @ torch.ones(4, 4), BIG),
    "convolution": (
        lambda x, y: F.conv2d(x[None, None], torch.ones(1, 1, 3, 3), padding=1)[0, 0]
        - F.conv2d(y[None, None], torch.ones(1, 1, 3, 3), padding=1)[0, 0],
        BIG,
    ),
    "0 times exp": (lambda x, y: (x - y) * torch.exp(y), 100.0),
    "division": (lambda x, y: x / (y - x), 0.0),
    "division by a tiny number": (lambda x, y: x / 1e-30 - y / 1e-30, 1e10),
    "inverse": (lambda x, y: 1 / (x * 0) - 1 / (y * 0), 1.0),
    "root": (lambda x, y: torch.sqrt(-x) + y, 1.0),
    "norm": (lambda x, y: x.norm(dim=-1, keepdim=True) - y * y, 1e30),
    "softmax of inf": (lambda x, y: torch.softmax(torch.exp(x), -1) + y, 100.0),
    "softmax of nothing": (lambda x, y: torch.softmax(x.masked_fill(x > 0, -INF), -1) + y, 1.0),
    "layer norm": (lambda x, y: F.layer_norm(x * y * torch.arange(1.0, 5.0), (4,)), 1e30),
    "batch norm": (
        lambda x, y: F.batch_norm(x, torch.zeros(4), torch.full((4,), 1e-38), eps=1e-45)
        - F.batch_norm(y, torch.zeros(4), torch.full((4,), 1e-38), eps=1e-45),
        1e25,
    ),
    "attention": (
        lambda x, y: F.scaled_dot_product_attention(x[None, None], x[None, None], y[None, None])[0, 0], 1e25,
    ),
    "gelu": (lambda x, y: F.gelu(-torch.exp(x)) + y, 100.0),
    "sine": (lambda x, y: torch.sin(torch.exp(x)) + y, 100.0),
    "bicubic": (
        lambda x, y: F.interpolate(x[None, None], size=(4, 4), mode="bicubic")[0, 0] * 1e30 - y * BIG,
        1e30,
    ),
}  # fmt: skip
LOSES = {
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(-1, 1),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "minimum": lambda x: torch.minimum(x, torch.zeros(())),
    "comparison": lambda x: x > 0,
    "choice": lambda x: torch.where(x == x, 1.0, 2.0),
    "largest": lambda x: x.amax(-1),
    "place": lambda x: x.argmax(-1),
    "pooling": lambda x: F.max_pool2d(x[None, None], 2),
}


# The functions whose constants have no dtype of their own.
IN_BFLOAT16 = """
    expm1 power square sum mean product division inverse root norm gelu sine attention
    reduced_sum running_sum 0_times_exp softmax_of_inf softmax_of_nothing
""".split()


def check_on_odd_values(model, value, dtype=torch.float32):
    """Compare with eager torch on ordinary numbers, on unusual ones, and on both."""
    harmless = torch.full((4, 4), 0.5, dtype=dtype), torch.full((4, 4), -0.25, dtype=dtype)
    compiled = torchport.compile(model, harmless, options={"cache": False, "check": False})
    assert compiled.coverage.ops_remain == 0
    odd = torch.full((4, 4), value, dtype=dtype), torch.full((4, 4), value, dtype=dtype)
    mixed = odd[0].clone(), odd[1].clone()
    mixed[0][::2] = 0.5
    assert any(result.isnan().any() for result in model(*odd))
    for inputs in (harmless, odd, mixed):
        torch.testing.assert_close(compiled(*inputs), model(*inputs), equal_nan=True)


@pytest.mark.parametrize("arises", ARISES)
def test_a_nan_that_arises_inside_is_not_lost(arises):
    function, value = ARISES[arises]

    def model(x, y):
        result = function(x, y)
        return torch.relu(result), result > 0

    check_on_odd_values(model, value)
    if arises.replace(" ", "_") in IN_BFLOAT16:
        check_on_odd_values(model, value, torch.bfloat16)


def test_a_result_that_overflows_in_half_precision_does_so_as_torchs_does():
    x = torch.tensor([1.0, 300.0, -300.0], dtype=torch.float16)
    compiled = torchport.compile(lambda x: (x * x, x * -4), (x[:1].expand(3),), options={"cache": False})
    assert compiled.coverage.ops_remain == 0
    for ours, theirs in zip(compiled(x), (x * x, x * -4), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert compiled(x)[0].tolist() == [1.0, INF, INF]


def test_float16_does_not_overflow_inside():
    x = torch.tensor([1.0, 300.0], dtype=torch.float16)
    compiled = torchport.compile(lambda x: (x * x).sqrt(), (x,), options={"cache": False, "check": False})
    assert compiled(x).tolist() == [1.0, 300.0]  # 300 * 300 overflows float16, so eager's root is infinite


@pytest.mark.parametrize("loses", LOSES)
def test_a_nan_is_not_lost_by_an_op(loses):
    def model(x, y):
        return LOSES[loses](torch.expm1(x) - torch.expm1(y))

    harmless, odd = (torch.full((4, 4), value) for value in (0.5, 100.0))
    compiled = torchport.compile(model, (harmless, harmless), options={"cache": False, "check": False})
    for x in (harmless, odd):
        torch.testing.assert_close(compiled(x, x), model(x, x), equal_nan=True)


def test_an_overflow_deep_inside_is_seen_and_harmless_numbers_stay_on_the_device():
    torch.manual_seed(0)
    model = Residual(8).eval()
    for parameter in model.parameters():
        if parameter.dim() == 4:
            nn.init.normal_(parameter, std=30.0)
    x = torch.randn(1, 8, 6, 6) * 1e-10
    compiled = torchport.compile(model, (x,), options={"cache": False})
    for scale in (1.0, 1e10, 1e20, 1e30):
        torch.testing.assert_close(
            compiled(x * scale), model(x * scale), equal_nan=True, rtol=1e-3, atol=INF if scale > 1 else 1e-3
        )


def test_products_that_overflow_do_so_though_a_sum_is_fused_with_them():
    def model(x):
        return x * 3 - x.flip(-1) * 2

    harmless = torch.ones(4, 4)
    compiled = torchport.compile(model, (harmless,), options={"cache": False})
    for x in (harmless, harmless * 1.2e38, torch.tensor([[1.2e38, 1.8e38, 1.9e38, -1.2e38]]).expand(4, 4)):
        torch.testing.assert_close(compiled(x), model(x), equal_nan=True)


def test_values_are_called_small_up_to_a_limit_that_no_model_reaches():
    assert SMALL > 1e10
    assert {one.name for one in Condition} == {"FINITE", "SMALL", "ROWS", "NOT_PLUS_INF", "FITS"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_nan_in_any_one_of_many_values_of_one_shape_is_seen(dtype):
    def model(*several):
        return [torch.relu(each) for each in several]

    harmless = [torch.full((3, 4), 200.0, dtype=dtype) for _ in range(20)]
    compiled = torchport.compile(model, tuple(harmless), options={"cache": False, "check": False})
    assert compiled.coverage.ops_remain == 0
    assert [given.tolist() for given in compiled(*harmless)] == [given.tolist() for given in harmless]
    assert not compiled.fallbacks.fallbacks  # the sums of many finite numbers are finite
    for place in (0, 7, 15, 16, 19):
        given = [each.clone() for each in harmless]
        given[place][1, 2] = NAN
        results = compiled(*given)
        assert [bool(result.isnan().any()) for result in results] == [index == place for index in range(20)]


def test_a_nan_in_one_of_many_transposed_values_is_seen():
    def model(*several):
        return [torch.relu(each).t() for each in several]

    given = [torch.ones(3, 4) for _ in range(9)]
    compiled = torchport.compile(model, tuple(given), options={"cache": False, "check": False})
    assert compiled.coverage.ops_remain == 0
    given[8][1, 2] = NAN
    assert [bool(result.isnan().any()) for result in compiled(*given)] == [index == 8 for index in range(9)]


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1e-12, 1.0, 1e12, 1e17])
def test_a_norm_that_is_written_out_is_no_larger_than_its_range(scale):
    torch.manual_seed(0)
    x = torch.randn(4, 64) * scale
    x[0, 1:] = 0.0  # the largest possible value: the square root of the number of elements
    assert written_norm(x).abs().max() <= 8.001
    island = island_of(written_norm, x).graph_module
    product = next(node for node in island.graph.nodes if _name(node) == "mul")
    known = Island(island).walk(dict.fromkeys(island.graph.find_nodes(op="placeholder"), Condition.SMALL))
    assert 8 <= known.ranges[product].largest <= 8.01
