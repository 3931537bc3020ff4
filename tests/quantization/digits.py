"""Models that train on scikit-learn's bundled digits to their usual accuracy in seconds."""

import functools

import torch
from sklearn.datasets import load_digits
from torch import nn


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return images and labels for training, and others for evaluation."""
    bundle = load_digits()
    images = torch.tensor(bundle.images, dtype=torch.float32) / 16
    labels = torch.tensor(bundle.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


class ResidualCnn(nn.Module):
    """Convolutions with norms, a residual sum, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(256, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        seen = self.first(images[:, None])
        return self.head(self.pool(torch.relu(seen + self.second(seen))).flatten(1))


class SmallViT(nn.Module):
    """Attention over rows as tokens, with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.position = nn.Parameter(torch.randn(1, 8, 32) * 0.02)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        tokens = self.embed(images) + self.position
        tokens = torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], 1)
        return self.head(self.norm(self.encoder(tokens))[:, 0])


class RowLstm(nn.Module):
    """A recurrent network over rows as time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        return self.head(self.recurrent(images)[0][:, -1])


_EPOCHS = {ResidualCnn: 10, SmallViT: 30, RowLstm: 25}


@functools.cache
def trained(kind: type[nn.Module]) -> nn.Module:
    """Return a trained model of a class."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind()
        train(model, _EPOCHS[kind], rate=3e-3)
    return model.eval()


def train(model: nn.Module, epochs: int, rate: float) -> None:
    """Train a model."""
    images, labels, _, _ = digits()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], rate)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def accuracy(model: nn.Module) -> float:
    """Return the accuracy in percent on digits that were used neither for training nor for calibration."""
    _, _, images, labels = digits()
    with torch.no_grad():
        return 100 * float((model(images).argmax(1) == labels).float().mean())


def calibration() -> list[torch.Tensor]:
    """Return batches for calibration, the last one smaller."""
    return list(digits()[0][:500].split(16))
