"""Builds modules with random weights that are the same each time, and that leave the caller's dice alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from torchport.torch_private import FakeTensor

SEED = 0
STANDARD_DEVIATION = 0.02


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Seed torch's CPU generator for the block and put its state back afterwards.

    Weights are drawn on the CPU, so the other devices' generators are not touched at all.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        yield


def wake_zero_weights(module: nn.Module) -> None:
    """Draw anew every weight matrix that is all zeros, from a narrow normal distribution.

    Some libraries start a model's head at zero (torchvision's ViT does): the outputs are then all zero
    whatever the rest of the model computes, and a comparison of two such outputs proves nothing. Vectors
    stay as they are: a zero bias or scale is the usual start and silences nothing by itself.
    """
    generator = torch.Generator(device="cpu").manual_seed(SEED)
    for parameter in module.parameters():
        if _is_zero_matrix(parameter):
            drawn = torch.randn(parameter.shape, generator=generator, device="cpu") * STANDARD_DEVIATION
            with torch.no_grad():
                parameter.copy_(drawn)


def _is_zero_matrix(parameter: nn.Parameter) -> bool:
    if parameter.ndim < 2 or parameter.numel() == 0 or not parameter.is_floating_point():
        return False
    if parameter.is_meta or isinstance(parameter, FakeTensor):
        return False
    # One element tells for nearly every weight; only a suspect is read as a whole.
    return not bool(parameter.detach()[(0,) * parameter.ndim]) and not bool(parameter.detach().any())
