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


@pytest.hookimpl(tryfirst=True)  # before those that `-m` does not ask for are left out
def pytest_collection_modifyitems(items):
    """Leave OpenVINO within `torch.compile` to `make conformance`: that way runs here on the host.

    OpenVINO runs here within `torchport.compile`, and both together in `tests/compiler`.
    """
    for item in items:
        chosen = getattr(item, "callspec", None)
        if chosen is not None and (chosen.params.get("bring_up"), chosen.params.get("target")) == (
            "torch.compile",
            "openvino",
        ):
            item.add_marker(pytest.mark.conformance)
