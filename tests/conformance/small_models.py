"""Small models built only from torch.nn: typical building blocks, for machines without model libraries."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Apply(nn.Module):
    """A module that applies a function to one input and its parts."""

    def __init__(self, function: Callable[..., torch.Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.parts)


def _conv(given: int, out: int, size: int = 3, stride: int = 1, **more: int) -> nn.Sequential:
    conv = nn.Conv2d(given, out, size, stride, size // 2, bias=False, **more)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU())


def _shuffle(x: torch.Tensor, branch: nn.Module) -> torch.Tensor:
    left, right = x.chunk(2, dim=1)
    y = torch.cat([left, branch(right)], 1)
    batch, channels, height, width = y.shape
    return y.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(y.shape)


def _squeeze(x: torch.Tensor, conv: nn.Module, down: nn.Module, up: nn.Module) -> torch.Tensor:
    y = F.hardswish(conv(x))
    scale = F.hardsigmoid(up(F.relu(down(F.adaptive_avg_pool2d(y, 1)))))
    return x + y * scale


def _windows(x: torch.Tensor, attention: nn.Module) -> torch.Tensor:
    batch, height, width, channels = x.shape
    y = torch.roll(x, (-2, -2), (1, 2)).view(batch, height // 4, 4, width // 4, 4, channels)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels)
    y = attention(y, y, y, need_weights=False)[0]
    y = y.view(batch, height // 4, width // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
    return x + torch.roll(y.reshape(x.shape), (2, 2), (1, 2))


def _causal(x: torch.Tensor, qkv: nn.Module, out: nn.Module) -> torch.Tensor:
    q, k, v = qkv(x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + out(y.transpose(1, 2).reshape(x.shape))


def _relative(x: torch.Tensor, qkv: nn.Module, bias: nn.Module) -> torch.Tensor:
    """Compute attention with T5's relative position biases."""
    places = torch.arange(x.shape[1], device=x.device)
    distance = (places[None, :] - places[:, None]).abs()
    far = 8 + (torch.log(distance.float().clamp(min=1) / 8) / math.log(4) * 8).to(torch.long)
    bucket = torch.where(distance < 8, distance, far.clamp(max=15))
    q, k, v = qkv(x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-1, -2) + bias(bucket).permute(2, 0, 1)
    return x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


def _rotary(
    x: torch.Tensor, norm: nn.Module, qkv: nn.Module, gate: nn.Module, down: nn.Module
) -> torch.Tensor:
    q, k, v = qkv(norm(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
    half = q.shape[-1] // 2
    steps = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None] * steps
    cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))
    q, k = (y * cos + torch.cat([-y[..., half:], y[..., :half]], -1) * sin for y in (q, k))
    y = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
    up, side = gate(norm(y)).chunk(2, -1)
    return y + down(F.silu(up) * side)


def _experts(x: torch.Tensor, router: nn.Module, *experts: nn.Module) -> torch.Tensor:
    weights, chosen = router(x).softmax(-1).topk(2, -1)
    mask = F.one_hot(chosen, len(experts)).to(x.dtype) * weights[..., None]
    all_results = torch.stack([expert(x) for expert in experts], -1)
    return (all_results * mask.sum(-2)[..., None, :]).sum(-1)


def _unet(x: torch.Tensor, down: nn.Module, middle: nn.Module, up: nn.Module) -> torch.Tensor:
    first = down(x)
    y = middle(F.max_pool2d(first, 2))
    y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    return up(torch.cat([first, y], 1))


def _convnext(
    x: torch.Tensor, conv: nn.Module, norm: nn.Module, up: nn.Module, down: nn.Module
) -> torch.Tensor:
    y = norm(conv(x).permute(0, 2, 3, 1))
    return x + down(F.gelu(up(y))).permute(0, 3, 1, 2)


def _last(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    return layer(x)[0]


def _head(x: torch.Tensor, linear: nn.Module) -> torch.Tensor:
    scores = linear(x).float()
    return torch.cat([scores.log_softmax(-1), scores.logsumexp(-1, keepdim=True), scores.cumsum(-1)], -1)


def _fire(x: torch.Tensor, squeeze: nn.Module, left: nn.Module, right: nn.Module) -> torch.Tensor:
    y = F.max_pool2d(F.relu(squeeze(x)), 3, 2, ceil_mode=True)
    return torch.cat([F.relu(left(y)), F.relu(right(y))], 1)


def _transformer(x: torch.Tensor, both: nn.Module, queries: nn.Module) -> torch.Tensor:
    return both(x, queries(torch.arange(5, device=x.device)).expand(x.shape[0], -1, -1))


IMAGE, TOKENS, SEQUENCE, SIGNAL = (2, 3, 32, 32), (2, 12), (2, 16, 32), (2, 8, 40)

# A factory for each model, and the shape of its input; the input holds integers if that is TOKENS.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), SEQUENCE),
    "convolutions": (lambda: nn.Sequential(_conv(3, 16), _conv(16, 24, 3, 2), _conv(24, 8, 5)), IMAGE),
    "depthwise": (lambda: nn.Sequential(_conv(3, 16), _conv(16, 16, groups=16), _conv(16, 8, 1)), IMAGE),
    "dilated": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, dilation=2), nn.LeakyReLU(), nn.Conv2d(8, 8, 3, groups=4)),
        IMAGE,
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ELU(), nn.ConvTranspose2d(8, 3, 3, 2, output_padding=1)
        ),
        IMAGE,
    ),
    "convolutions-3d": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d((1, 2, 2))
        ),
        IMAGE,
    ),
    "fire": (
        lambda: Apply(_fire, nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)),
        IMAGE,
    ),
    "shuffle": (lambda: nn.Sequential(_conv(3, 16), Apply(_shuffle, _conv(8, 8))), IMAGE),
    "squeeze": (
        lambda: nn.Sequential(
            _conv(3, 16), Apply(_squeeze, _conv(16, 16), nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1))
        ),
        IMAGE,
    ),
    "convnext": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 4, 4),
            Apply(
                _convnext,
                nn.Conv2d(16, 16, 7, padding=3, groups=16),
                nn.LayerNorm(16),
                nn.Linear(16, 64),
                nn.Linear(64, 16),
            ),
        ),
        IMAGE,
    ),
    "unet": (lambda: Apply(_unet, _conv(3, 8), _conv(8, 8), _conv(16, 3)), IMAGE),
    "norms": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.InstanceNorm2d(8), nn.PReLU(8)
        ),
        IMAGE,
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.AvgPool2d(3, 2, 1), nn.AdaptiveMaxPool2d(7), nn.AdaptiveAvgPool2d((5, 3)), nn.Flatten()
        ),
        IMAGE,
    ),
    "pixel-shuffle": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.PixelUnshuffle(4), nn.Tanh()
        ),
        IMAGE,
    ),
    "signal": (
        lambda: nn.Sequential(
            nn.Conv1d(8, 16, 3, 2), nn.GLU(1), nn.ConstantPad1d(2, 0.5), nn.Conv1d(8, 4, 3)
        ),
        SIGNAL,
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50)), TOKENS),
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True), SEQUENCE),
    "encoder-decoder": (
        lambda: Apply(_transformer, nn.Transformer(32, 4, 1, 1, 64, batch_first=True), nn.Embedding(5, 32)),
        SEQUENCE,
    ),
    "causal": (lambda: Apply(_causal, nn.Linear(32, 96), nn.Linear(32, 32)), SEQUENCE),
    "relative": (lambda: Apply(_relative, nn.Linear(32, 96), nn.Embedding(16, 4)), SEQUENCE),
    "rotary": (
        lambda: Apply(
            _rotary, nn.RMSNorm(32, 1e-5), nn.Linear(32, 96), nn.Linear(32, 128), nn.Linear(64, 32)
        ),
        SEQUENCE,
    ),
    "windows": (
        lambda: nn.Sequential(
            nn.Linear(3, 16), Apply(_windows, nn.MultiheadAttention(16, 2, batch_first=True))
        ),
        (2, 8, 8, 3),
    ),
    "mixer": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 8, 8), nn.Flatten(2), nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)
        ),
        IMAGE,
    ),
    "experts": (lambda: Apply(_experts, nn.Linear(32, 4), *[nn.Linear(32, 32) for _ in range(4)]), SEQUENCE),
    "lstm": (lambda: Apply(_last, nn.LSTM(32, 16, batch_first=True, bidirectional=True)), SEQUENCE),
    "gru": (lambda: Apply(_last, nn.GRU(32, 16, 2, batch_first=True)), SEQUENCE),
    "head": (lambda: Apply(_head, nn.Linear(32, 20)), SEQUENCE),
}


def load(
    name: str, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, torch.Tensor]:
    """Return a model with random weights, in evaluation mode, and its input."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()
    given = torch.randint(0, 50, shape) if shape == TOKENS else torch.randn(shape).to(dtype)
    return model.to(device, dtype), given.to(device)
