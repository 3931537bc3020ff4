"""Models in half precision run unchanged, as close to float32 as eager torch."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino.load import parts_of
from torchport.verification import HALVES, coarsest_step, half_difference

OPTIONS = {"cache": False}
BOTH = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])


class Block(nn.Module):
    """A transformer block."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        query, key, value = self.mix(self.norm(x)).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(2, 8, 32))
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)  # as language models do
        return x + self.narrow(F.gelu(self.wide((x.float() * scale).to(x.dtype))))


class Image(nn.Module):
    """Convolutions with all supported norms."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, x):
        return torch.log_softmax(self.layers(x), -1)


class Mixed(nn.Module):
    """A model partly in bfloat16, partly in float32."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 32).to(torch.bfloat16)

    def forward(self, x):
        return torch.softmax(self.second(self.first(x).relu().to(torch.bfloat16)).float(), -1)


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.tanh(x @ x.mT) @ x


MODELS = {"transformer": (Block, (2, 8, 32)), "convolutions": (Image, (1, 3, 16, 16))}


def check(model, wide_model, x):
    """Compile and compare; everything must run on the device."""
    compiled = torchport.compile(model, (x,), options=OPTIONS)
    assert [(row.op, row.detail) for row in compiled.coverage.stayed] == []
    with torch.no_grad():
        eager, wide = model(x), wide_model(x.float())
        actual = compiled(x)
    assert compiled.fallbacks.fallbacks == 0
    assert actual.dtype == eager.dtype
    step = coarsest_step([torch.bfloat16 if x.dtype is torch.float32 else x.dtype])
    assert half_difference(actual, eager, wide, step=step) == ""
    return compiled


@BOTH
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_as_it_is(name, dtype):
    torch.manual_seed(0)
    kind, shape = MODELS[name]
    model = kind().to(dtype).eval()
    check(model, copy.deepcopy(model).float(), torch.randn(shape).to(dtype))


def test_a_mixed_model_and_autocast():
    torch.manual_seed(0)
    model, x = Mixed().eval(), torch.randn(4, 32)
    wide = copy.deepcopy(model).float()
    check(model, lambda x: torch.softmax(wide.second(wide.first(x).relu()), -1), x)
    check(autocast, lambda x: torch.tanh(x @ x.mT) @ x, torch.randn(8, 8))


def test_torch_compile_takes_it_too():
    torch.manual_seed(0)
    model, x = Block().bfloat16().eval(), torch.randn(2, 8, 32).bfloat16()
    with torch.no_grad():
        actual = torch.compile(model, backend="torchport", options=OPTIONS)(x)
        assert half_difference(actual, model(x), copy.deepcopy(model).float()(x.float()), step=2**-7) == ""


@BOTH
def test_weights_are_kept_in_the_models_dtype(dtype):
    target = find("openvino")
    weight = torch.randn(64, 64).to(dtype)
    artifact = target.build(
        island_of(lambda x: F.linear(x, weight), torch.ones(1, 64, dtype=dtype)), target.make_options({})
    )
    _, weights = parts_of(artifact)
    assert 64 * 64 * 2 <= weights.size < 64 * 64 * 2 + 200


@BOTH
def test_a_package_of_it_gives_the_same(dtype, tmp_path):
    torch.manual_seed(0)
    model, x = Block().to(dtype).eval(), torch.randn(2, 8, 32).to(dtype)
    compiled = torchport.compile(model, (x,), options=OPTIONS)
    torchport.save(compiled, tmp_path / "model.pt2")
    loaded = torchport.load(tmp_path / "model.pt2")
    assert torch.equal(loaded(x), compiled(x))


@BOTH
def test_the_variance_of_numbers_far_from_0(dtype):
    """Their mean, rounded to the dtype, would be off by as much as they vary."""
    torch.manual_seed(0)
    compiled = torchport.compile(
        lambda x: x.var(-1), (torch.randn(4, 300, dtype=dtype),), options={**OPTIONS, "speed_trial": False}
    )
    assert compiled.coverage.complete
    x = (torch.randn(4, 300) + 250).to(dtype)
    actual, eager, wide = compiled(x), x.var(-1), x.float().var(-1)
    assert compiled.fallbacks.fallbacks == 0
    assert half_difference(actual, eager, wide, step=coarsest_step([dtype])) == ""


@BOTH
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_attention_is_rounded_once(causal, dtype):
    """Large scores, or a scale, rounded to the dtype would be off by as much as a result in places."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 40, 64).to(dtype) for _ in range(3))

    def attention(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=0.3)

    compiled = torchport.compile(attention, (query, key, value), options={**OPTIONS, "speed_trial": False})
    assert compiled.coverage.complete
    for factor in (1, 8):
        actual = compiled(query * factor, key, value)
        exact = attention(query.float() * factor, key.float(), value.float())
        torch.testing.assert_close(actual.float(), exact, rtol=torch.finfo(dtype).eps / 2, atol=1e-4)
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize(
    ("target", "dtype"),
    [("openvino", torch.bfloat16), ("openvino", torch.float16), ("ttnn", torch.bfloat16)],
)
@torch.no_grad()
def test_an_rms_norm_without_eps_adds_the_step_of_float32(target, dtype):
    torch.manual_seed(0)
    model = nn.RMSNorm(64, dtype=dtype).eval()
    example, x = torch.randn(4, 64, dtype=dtype), torch.randn(4, 64, dtype=dtype) / 1000
    compiled = torchport.compile(model, (example,), target=target, options={**OPTIONS, "speed_trial": False})
    assert compiled.coverage.complete
    torch.testing.assert_close(compiled(x), model(x), rtol=0.05, atol=0.05)
    assert compiled.fallbacks.fallbacks == 0
