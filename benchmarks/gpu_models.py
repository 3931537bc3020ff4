"""The models of `gpu.py`, written with torch alone: ResNet-50, BERT-base and a step of Llama."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1 = nn.Conv2d(given, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(out)
        same = given == out and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50: a stem, four stages of bottlenecks, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, given = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for index in range(count):
                blocks.append(Bottleneck(given, 64 << stage, 2 if stage and not index else 1))
                given = 256 << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(given, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Encoder(nn.Module):
    """One of BERT's layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-base: twelve layers of 768."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.norm = nn.LayerNorm(768)
        self.layers = nn.Sequential(*[Encoder(768, 12) for _ in range(12)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.norm(self.words(ids) + self.places(places)))


class Decoder(nn.Module):
    """One of Llama's layers, for one token and the KV cache so far."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        z = self.norm2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class LlamaStep(nn.Module):
    """A decoding step of a Llama with sixteen layers of width 2048, about 1.2 billion parameters."""

    def __init__(self, layers: int = 16, width: int = 2048, heads: int = 32, hidden: int = 8192) -> None:
        super().__init__()
        self.words = nn.Embedding(32000, width)
        self.layers = nn.ModuleList([Decoder(width, heads, hidden) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 32000, bias=False)

    def forward(self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, keys[index], values[index])
        return self.head(self.norm(x))


def load(
    name: str, device: str, dtype: torch.dtype, *, small: bool = False
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model with random weights in evaluation mode, and inputs for one call."""
    torch.manual_seed(0)
    if name == "resnet50":
        size = 64 if small else 224
        model, args = ResNet50(), (torch.randn(1, 3, size, size, device=device, dtype=dtype),)
    elif name == "bert-base":
        model, args = Bert(), (torch.randint(0, 30522, (1, 16 if small else 128), device=device),)
    else:
        model = LlamaStep(2, 64, 2, 128) if small else LlamaStep()
        shape = (len(model.layers), 1, model.layers[0].heads, 16 if small else 512, 32 if small else 64)
        past = [torch.randn(shape, device=device, dtype=dtype) for _ in range(2)]
        model, args = model, (torch.randint(0, 32000, (1, 1), device=device), *past)
    return model.to(device, dtype).eval(), args


MODELS = ("resnet50", "bert-base", "llama-step")
