"""Inductor's cache is the user's own."""

import os

import pytest
import torch

import torchport
from torchport.targets.inductor.private_cache import private_cache

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def test_a_private_directory_in_use_stays(tmp_path, monkeypatch):
    for name, exists in (("existing", True), ("new", False)):
        folder = tmp_path / name
        if exists:
            folder.mkdir(mode=0o700)
        monkeypatch.setenv(VARIABLE, str(folder))
        with private_cache():
            assert os.environ[VARIABLE] == str(folder)
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
def test_one_that_others_may_write_to_is_replaced_meanwhile(tmp_path, monkeypatch, own_cache, caplog):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv(VARIABLE, str(shared))
    with private_cache():
        assert os.environ[VARIABLE] == str(own_cache / "inductor")
        assert (own_cache / "inductor").stat().st_mode & 0o777 == 0o700
    assert os.environ[VARIABLE] == str(shared)
    assert "or others may write to it" in caplog.text


def test_a_link_is_not_used(tmp_path, monkeypatch, own_cache):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "link"))
    with private_cache():
        assert os.environ[VARIABLE] == str(own_cache / "inductor")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
def test_compiling_neither_reads_nor_writes_what_others_may_write(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv(VARIABLE, str(shared))
    x = torch.randn(3, 4)
    options = {"child_trial": False, "cache": False}
    compiled = torchport.compile(lambda x: x.sin() * 2, (x,), target="inductor", options=options)
    assert compiled.coverage.complete
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    assert list(shared.iterdir()) == []


def test_without_one_the_cache_is_in_torchports(monkeypatch, own_cache):
    monkeypatch.delenv(VARIABLE)
    with private_cache():
        assert os.environ[VARIABLE] == str(own_cache / "inductor")
    assert os.environ.pop(VARIABLE) == str(own_cache / "inductor")


def test_without_a_directory_of_ones_own_it_is_a_temporary_one(tmp_path, monkeypatch, own_cache):
    own_cache.write_text("a file")
    monkeypatch.delenv(VARIABLE)
    with private_cache():
        made = os.environ[VARIABLE]
        assert os.path.isdir(made)
    assert not os.path.exists(made)
    assert VARIABLE not in os.environ
