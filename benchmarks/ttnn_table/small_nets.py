"""Small networks of the table that no package provides, built from their descriptions."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional


def linear_autoencoder() -> nn.Module:
    """784-128-64-12-3 and back, with ReLU between the layers."""
    sizes = (784, 128, 64, 12, 3, 12, 64, 128, 784)
    layers: list[nn.Module] = []
    for place, (ins, outs) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(ins, outs))
        if place not in (3, 7):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Tanh())


class ConvAutoencoder(nn.Module):
    """Two convolutions, each pooled, and two transposed ones back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.third, self.fourth = (
            nn.ConvTranspose2d(4, 16, 2, stride=2),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take images of 28 by 28."""
        x = self.pool(functional.relu(self.first(x)))
        x = self.pool(functional.relu(self.second(x)))
        return torch.sigmoid(self.fourth(functional.relu(self.third(x))))


class Mnist(nn.Module):
    """Two convolutions, a pooling, two linear layers, dropout, and the logarithm of softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.third, self.fourth = nn.Linear(9216, 128), nn.Linear(128, 10)
        self.drop, self.drop_more = nn.Dropout(0.25), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take images of 28 by 28."""
        x = functional.max_pool2d(functional.relu(self.second(functional.relu(self.first(x)))), 2)
        x = self.drop_more(functional.relu(self.third(torch.flatten(self.drop(x), 1))))
        return functional.log_softmax(self.fourth(x), dim=1)


def _two_convolutions(ins: int, outs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for place in range(2):
        layers += [
            nn.Conv2d(ins if place == 0 else outs, outs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net: pairs of convolutions, pooled on the way down, concatenated with skips on the way up.

    Args:
        widths: how many channels each level has.
        sigmoid: whether the result is a probability.
    """

    def __init__(self, widths: tuple[int, ...], *, sigmoid: bool) -> None:
        super().__init__()
        ins = (3, *widths)
        self.down = nn.ModuleList(map(_two_convolutions, ins, widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, stride=2) for w in reversed(widths[1:]))
        self.up = nn.ModuleList(_two_convolutions(w, w // 2) for w in reversed(widths[1:]))
        self.last = nn.Conv2d(widths[0], 1, 1)
        self.sigmoid = sigmoid

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take images whose sides can be halved at each level."""
        kept = []
        for level in self.down:
            x = level(x if not kept else functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for grow, level in zip(self.grow, self.up, strict=True):
            x = level(torch.cat((grow(x), kept.pop()), dim=1))
        x = self.last(x)
        return torch.sigmoid(x) if self.sigmoid else x


def _darknet(ins: int, outs: int, size: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(ins, outs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outs), nn.LeakyReLU(0.1)
    )


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = _darknet(width, width // 2, 1), _darknet(width // 2, width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x))


class YoloV3(nn.Module):
    """Darknet-53 with heads at three scales; coarser features are upsampled and joined with finer ones."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.stem = _darknet(3, 32, 3)
        stages = ((32, 64, 1), (64, 128, 2), (128, 256, 8), (256, 512, 8), (512, 1024, 4))
        self.stages = nn.ModuleList(
            nn.Sequential(_darknet(ins, outs, 3, 2), *[_Residual(outs) for _ in range(count)])
            for ins, outs, count in stages
        )
        outputs = 3 * (classes + 5)
        self.necks = nn.ModuleList(
            nn.Sequential(
                _darknet(ins, width, 1), _darknet(width, 2 * width, 3), _darknet(2 * width, width, 1),
                _darknet(width, 2 * width, 3), _darknet(2 * width, width, 1),
            )
            for ins, width in ((1024, 512), (768, 256), (384, 128))
        )  # fmt: skip
        self.heads = nn.ModuleList(
            nn.Sequential(_darknet(width, 2 * width, 3), nn.Conv2d(2 * width, outputs, 1))
            for width in (512, 256, 128)
        )
        self.shrink = nn.ModuleList((_darknet(512, 256, 1), _darknet(256, 128, 1)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Take images whose sides are multiples of 32."""
        x = self.stem(x)
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        found = []
        for scale, (neck, head) in enumerate(zip(self.necks, self.heads, strict=True)):
            if scale:
                x = functional.interpolate(self.shrink[scale - 1](x), scale_factor=2.0)
                x = torch.cat((x, kept[-1 - scale]), dim=1)
            x = neck(x)
            found.append(head(x))
        return tuple(found)
