"""Runs each test in an empty folder, offline, with torch_ttnn's scripts available."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working directory, with network access disabled."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield folder
    torch._dynamo.reset()


@pytest.fixture
def tools(folder) -> Path:
    """The folder `tools/`, as in a checkout."""
    return Path(shutil.copytree(ROOT / "compat" / "tools", folder / "tools"))
