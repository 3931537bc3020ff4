"""Makes the test devices known by their names."""

import pytest

from compiler.devices import DEVICES
from torchport.targets import registry


@pytest.fixture
def devices(monkeypatch):
    known = registry._all() | DEVICES
    monkeypatch.setattr(registry, "_all", lambda: known)
