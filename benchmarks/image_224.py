"""The input of every model in the survey benchmark."""

import torch


def image() -> torch.Tensor:
    """Return one image of 224 × 224."""
    return torch.rand(1, 3, 224, 224)
