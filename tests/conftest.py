"""Keeps every test off the user's cache, and off what another test left in torch."""

import gc
import os
import subprocess

# For this process and its children: to compile a sample for each set of instructions takes a minute.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"

import pytest
import torch

from forked_python import ForkedPopen
from resume import pytest_addoption, pytest_configure  # noqa: F401  # hooks
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

ensure_torchvision_ops()  # lets tests import transformers at their head, which imports torchvision

# Otherwise Python spends an eighth of the time of tests that compile on looking through what libraries hold.
gc.set_threshold(10_000, 20, 50)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Gives each test an empty cache of its own: what is built here is not what is built there."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(folder))
    monkeypatch.delenv("TORCHPORT_CACHE_BYTES", raising=False)
    return folder


@pytest.fixture(autouse=True)
def no_speed_trial(monkeypatch):
    """Keeps what a busy machine measures out of coverages; the tests of the trial itself turn it on."""
    monkeypatch.setenv("TORCHPORT_SPEED_TRIAL", "0")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Gives each test the same random numbers, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def forked_python(monkeypatch):
    """Has the Python processes that a test or torchport starts begin with torch imported; see the module."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


@pytest.fixture(params=["host", "openvino"])
def target(request):
    """Runs a test once for each built-in target."""
    return request.param


@pytest.fixture
def torch_compile():
    """Compiles as a user of torch does: `torch_compile(model, "host")`; forgets it all afterwards."""

    def compile(model, target, *, dynamic=None, **options):
        torch._dynamo.reset()
        options = {"target": target, **options}
        return torch.compile(model, backend="torchport", options=options, dynamic=dynamic)

    yield compile
    torch._dynamo.reset()
