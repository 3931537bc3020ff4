"""Isolates every test from the user's cache, and from torch state left behind by other tests."""

import gc
import getpass
import os
import subprocess
import tempfile

# For this process and its children: compiling a sample for each instruction set takes a minute.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
# Torch's own default. Otherwise torchport would use another one for each test, with headers to compile first.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ.get(
    "TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
)

import pytest
import torch

from forked_python import ForkedPopen
from resume import pytest_addoption, pytest_configure  # noqa: F401  # hooks
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

ensure_torchvision_ops()  # lets test files import transformers, which imports torchvision

# Otherwise, tests that compile spend an eighth of their time collecting garbage among the libraries' objects.
gc.set_threshold(10_000, 20, 50)


def pytest_collection_finish():
    """Exclude what is imported by now from garbage collection, which takes half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Gives each test its own empty cache, so that tests share no artifacts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(folder))
    monkeypatch.delenv("TORCHPORT_CACHE_BYTES", raising=False)
    return folder


@pytest.fixture(autouse=True)
def no_speed_trial(monkeypatch):
    """Disables the speed trial, since timings on a busy machine vary; the trial's own tests turn it on."""
    monkeypatch.setenv("TORCHPORT_SPEED_TRIAL", "0")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Seeds torch's generator, so that random numbers do not depend on which tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def forked_python(monkeypatch):
    """Makes Python processes that a test or torchport starts begin with torch imported; see the module."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


@pytest.fixture(params=["host", "openvino"])
def target(request):
    """Runs a test once for each built-in target."""
    return request.param


@pytest.fixture
def torch_compile():
    """Compiles as a torch user does: `torch_compile(model, "host")`; resets Dynamo afterwards."""

    def compile(model, target, *, dynamic=None, **options):
        torch._dynamo.reset()
        options = {"target": target, **options}
        return torch.compile(model, backend="torchport", options=options, dynamic=dynamic)

    yield compile
    torch._dynamo.reset()
