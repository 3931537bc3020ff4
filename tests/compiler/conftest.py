"""Makes the test devices known by their names, and counts the calls of each test's own graphs."""

import weakref

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
    """Leaves out graphs of earlier tests, which nobody may have collected yet."""
    monkeypatch.setattr(graph_programs, "_watched", weakref.WeakSet())
