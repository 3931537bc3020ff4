"""Registers the test devices, and counts the calls of each test's own graphs."""

import weakref
from pathlib import Path

import pytest

from compiler.devices import DEVICES
from torchport.compiler import graph_programs
from torchport.targets import registry


@pytest.fixture
def devices(monkeypatch):
    known = registry._all() | DEVICES
    monkeypatch.setattr(registry, "_all", lambda: known)


@pytest.fixture(autouse=True)
def own_counts(monkeypatch):
    """Leaves out graphs of earlier tests, which may not have been garbage-collected yet."""
    monkeypatch.setattr(graph_programs, "_watched", weakref.WeakSet())


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects tests
def pytest_collection_modifyitems(items):
    """Keep `torch.compile` with OpenVINO in `make test`: `tests/end_to_end` has it with the host."""
    graphs = {"test_inference_graph.py", "test_training_graph.py", "test_transforms.py"}
    for item in items:
        if (
            item.path.is_relative_to(Path(__file__).parent)
            and ("torch_compile" in item.fixturenames or item.path.name in graphs)
            and hasattr(item, "callspec")
            and item.callspec.params.get("target") == "host"
        ):
            item.add_marker(pytest.mark.conformance)
