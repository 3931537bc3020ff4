"""The input that torchvision's models are surveyed with."""

import torch

SHAPE = (1, 3, 224, 224)


def image() -> torch.Tensor:
    """Return one image, whatever the size that a model's weights were trained for."""
    return torch.rand(SHAPE)
