"""The input that every model of the survey benchmark is given."""

import torch


def image() -> torch.Tensor:
    """Return one image of 224 × 224."""
    return torch.rand(1, 3, 224, 224)
