"""Registers the faulty targets, here and in child processes."""

from pathlib import Path

import pytest

from installed_targets import install_targets
from torchport.targets import registry

FAULTY = ("Aborts", "Hangs", "Wrong")


@pytest.fixture
def faulty_targets(tmp_path, monkeypatch):
    """Installs the targets of `faulty_targets.py` like another distribution's."""
    file = Path(__file__).parent / "faulty_targets.py"
    install_targets(tmp_path / "installed", file, {name.lower(): name for name in FAULTY}, monkeypatch)
    yield
    registry._all.cache_clear()
