"""Reproducible random weights for modules, without changing the state of the caller's generator."""

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
    """Seed torch's CPU generator within the block, and restore its state afterwards.

    Weights are drawn on the CPU, so the generators of other devices are not touched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        yield


def wake_zero_weights(module: nn.Module) -> None:
    """Reinitialize every all-zero weight matrix from a narrow normal distribution.

    Some libraries initialize a model's head with zeros (torchvision's ViT does): the outputs are then all
    zero whatever the rest of the model computes, and comparing two such outputs proves nothing. Vectors
    keep their values: a zero bias or scale is a common initialization, and does not zero a model's outputs.
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
    # The first element rules out nearly every weight; only if it is zero is the whole matrix read.
    return not bool(parameter.detach()[(0,) * parameter.ndim]) and not bool(parameter.detach().any())
