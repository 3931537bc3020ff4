"""File-backed payloads: the system can reclaim their memory."""

import os

import numpy
import pytest
import torch

from torchport.targets import mapped_payload
from torchport.targets.mapped_payload import new_payload, release_pages

SIZE = 1 << 25


def _held() -> int:
    """Return this process's anonymous and file-backed memory in bytes."""
    with open("/proc/self/status") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(("RssAnon", "RssFile")))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the memory")
def test_a_large_payload_takes_no_memory_once_it_is_released(tmp_path):
    made = new_payload(SIZE)
    made[:] = 7
    assert not list((tmp_path / "cache").iterdir())  # it has no name
    seen_by_torch = torch.from_numpy(made).numpy()
    before = _held()
    release_pages(seen_by_torch)
    assert before - _held() > SIZE // 2
    assert (made == 7).all()


def test_a_small_one_and_one_that_finds_no_disk_lie_in_memory(monkeypatch, tmp_path):
    assert new_payload(10).size == 10
    (tmp_path / "cache").write_text("no directory")
    made = new_payload(SIZE)
    made[-1] = 3
    release_pages(made)
    assert (made.size, made[-1]) == (SIZE, 3)


def test_what_is_gone_is_not_released_again():
    made = new_payload(SIZE)
    address = made.ctypes.data
    del made
    assert address not in mapped_payload._mappings
    release_pages(numpy.ones(5, dtype=numpy.uint8))
