"""The input with which torchvision models are surveyed."""

import torch

SHAPE = (1, 3, 224, 224)


def image() -> torch.Tensor:
    """Return one image of a fixed size, independent of the size that a model was trained for."""
    return torch.rand(SHAPE)
