"""Compiles models in each of the available ways."""

from pathlib import Path

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


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects tests
def pytest_collection_modifyitems(items):
    """Keep each way with one target in `make test`; the others run in `make conformance`.

    `torch.compile` runs here on the host, and on OpenVINO in `tests/compiler`.
    """
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent) or not hasattr(item, "callspec"):
            continue
        chosen = item.callspec.params
        way = chosen.get("bring_up", "torch.compile" if "torch_compile" in item.fixturenames else None)
        kept = {"torch.compile": "host", "torchport.compile": "openvino"}.get(way)
        if kept is not None and chosen.get("target", kept) != kept:
            item.add_marker(pytest.mark.conformance)
