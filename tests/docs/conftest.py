"""Lets the documents' code run: where it stands, without network, and off the user's cache."""

from pathlib import Path

import pytest

from docs.markdown import ROOT


@pytest.fixture(autouse=True)
def own_world(tmp_path, tmp_path_factory, monkeypatch):
    """Runs each test in a folder of its own, with a cache of its own, offline."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def root() -> Path:
    """The folder of the checkout."""
    return ROOT
