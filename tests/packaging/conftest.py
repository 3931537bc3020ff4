"""Makes the faulty targets known, here and in child processes."""

import os
import sys
from pathlib import Path

import pytest

from torchport.targets import registry

FAULTY = ("Aborts", "Hangs", "Wrong")


@pytest.fixture
def faulty_targets(tmp_path, monkeypatch):
    """Installs the targets of `faulty_targets.py` as another distribution would be."""
    folder = tmp_path / "installed"
    information = folder / "faulty_targets-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "faulty_targets.py").write_text((Path(__file__).parent / "faulty_targets.py").read_text())
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-targets\nVersion: 1.0\n")
    entries = "\n".join(f"{name.lower()} = faulty_targets:{name}" for name in FAULTY)
    (information / "entry_points.txt").write_text(f"[torchport.targets]\n{entries}\n")
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    registry._all.cache_clear()
    yield
    registry._all.cache_clear()
