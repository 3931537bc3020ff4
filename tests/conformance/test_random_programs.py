"""Random programs on unusual values: the compiled result equals eager torch's, including NaN and infinity.

The ops are continuous, so rounding cannot decide between results that are far apart.
"""

import random

import pytest
import torch
import torch.nn.functional as F

import torchport

ONE = {
    "relu": torch.relu,
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "gelu": F.gelu,
    "elu": F.elu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "clamp": lambda x: x.clamp(-1, 2),
    "square": lambda x: x * x,
    "sqrt": lambda x: torch.sqrt(x * x + 0.5),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1),
    "less its sum": lambda x: x - x.sum(-1, keepdim=True),
    "less its mean": lambda x: x - x.mean(0, keepdim=True),
    "less its most": lambda x: x - x.amax(-1, keepdim=True),
    "less its least": lambda x: x - x.amin(0, keepdim=True),
    "turned": lambda x: x.transpose(-1, -2).relu().transpose(-1, -2),
    "halves": lambda x: torch.cat([x, x * 2], -1)[..., ::2],
    "triangle": torch.tril,
    "sorted": lambda x: x.sort(-1).values,
    "most": lambda x: x - x.topk(1, -1).values,
    "positive": lambda x: torch.where(x > 0, x, x * 0.1),
    "nan_to_num": lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0),
    "maxima": lambda x: F.max_pool1d(x, 3, 1, 1),
}
TWO = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "where": lambda a, b: torch.where(a > b, a, b),
    "logaddexp": torch.logaddexp,
    "scores": lambda a, b: a @ b.transpose(-1, -2) @ b * 0.1,
}
# These quickly exceed float32's range.
GROWING = {
    "expm1": torch.expm1,
    "tenth power": lambda x: x**10,
    "cube": lambda x: x**3,
    "all products": lambda x: x @ x.transpose(-1, -2) @ x,
    "times a weight": lambda x: F.linear(x, torch.full((x.shape[-1], x.shape[-1]), 1e15)),
    "by a tiny number": lambda x: x / 1e-20,
    "difference": lambda x: x * 3 - x.flip(-1) * 2,
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "size": lambda x: x / x.norm(dim=-1, keepdim=True),
    "spread": lambda x: x - x.var(-1, keepdim=True, correction=0),
}
LOSING = ("relu", "clamp", "leaky_relu", "sigmoid", "gelu", "softmax", "maxima", "less its most", "positive")
SHAPES = [(3, 4), (1, 5), (2, 3, 4), (4, 4), (1, 1), (5, 2)]


def program(chance: random.Random, ones=ONE):
    steps = []
    for _ in range(chance.randint(2, 6)):
        if chance.random() < 0.7:
            steps.append((chance.choice(list(ones)), chance.randrange(3)))
        else:
            steps.append((chance.choice(list(TWO)), chance.randrange(3), chance.randrange(3)))

    def model(a, b):
        last = [a, b, a + b]
        for name, *places in steps:
            values = [last[place] for place in places]
            result = ones[name](*values) if len(places) == 1 else TWO[name](*values)
            if result.shape == a.shape:
                last = [result, *last[:2]]
        return last[0], last[1]

    return steps, model


def odd_values(chance: random.Random, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(chance.randrange(1 << 30)))
    kind = chance.randrange(6)
    if kind < 3:
        x.view(-1)[chance.randrange(x.numel())] = (float("nan"), float("inf"), -float("inf"))[kind]
    elif kind == 3:
        x.view(-1)[::2] = 0.0
    return x * 100 if kind == 4 else x


def large_values(chance: random.Random, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(chance.randrange(1 << 30)))
    return x * chance.choice([1.0, 100.0, 1e5, 1e12, 1e19, 1e30, 1e38])


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[] if number % 40 == 0 else [pytest.mark.conformance])
        for number in range(300)
    ],
)
def test_equals_eager_on_odd_values(number):
    chance = random.Random(number)
    steps, model = program(chance)
    shape = chance.choice(SHAPES)
    check(model, steps, shape, lambda: (odd_values(chance, shape), odd_values(chance, shape)))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[] if number % 40 == 0 else [pytest.mark.conformance])
        for number in range(200)
    ],
)
def test_equals_eager_where_numbers_overflow(number):
    """NaN and infinities are where eager torch has them, whichever ops create or lose them."""
    chance = random.Random(1000 + number)
    steps, model = program(chance, {**GROWING, **{name: ONE[name] for name in LOSING}})
    shape = chance.choice(SHAPES[:-1])
    check(model, steps, shape, lambda: (large_values(chance, shape), large_values(chance, shape)))


def check(model, steps, shape, make_inputs):
    """Compare a program with eager torch on six pairs of inputs."""
    compiled = torchport.compile(model, (torch.randn(shape), torch.randn(shape)), options={"cache": False})
    for _ in range(6):
        a, b = make_inputs()
        expected = model(a, b)
        for ours, theirs in zip(compiled(a, b), expected, strict=True):
            largest = theirs[theirs.isfinite()].abs().max().item() if theirs.isfinite().any() else 1.0
            torch.testing.assert_close(
                ours,
                theirs,
                rtol=2e-3,
                atol=1e-3 * max(1.0, largest),
                equal_nan=True,
                msg=lambda text: f"{steps} on {a.tolist()}, {b.tolist()}: {text}",
            )
