"""Compiles in each of the ways that there are."""

import pytest
import torch

import torchport


@pytest.fixture(params=["torchport.compile", "torch.compile"])
def bring_up(request, target, torch_compile):
    """Compiles a model for a target in one of two ways: `bring_up(model, *args, **kwargs)`."""

    def compile(model, *args, **kwargs):
        if request.param == "torchport.compile":
            return torchport.compile(model, args, kwargs, target=target)
        return torch_compile(model, target)

    with torch.no_grad():
        yield compile
