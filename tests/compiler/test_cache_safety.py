"""The cache is safe against other users, pipes, links, leftover files and wrong entries."""

import os
import stat
import time

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.compiler import cache
from torchport.compiler.cache import read, write
from torchport.targets import Artifact
from torchport.targets.user_directory import warn_once

X = torch.ones(1, 3)
owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture(autouse=True)
def warn_again():
    """Lets each test see the warning that is logged once per process."""
    warn_once.cache_clear()


def artifact(size=64, **properties):
    return Artifact(numpy.arange(size, dtype=numpy.uint8), properties)


def entries(folder):
    return sorted(folder.glob("*/*.island"))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@owners
class TestOwners:
    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
    def test_directories_and_files_are_the_users_alone_whatever_the_umask(self, umask, own_cache):
        before = os.umask(umask)
        try:
            write("ab12", artifact())
        finally:
            os.umask(before)
        assert [mode(own_cache), mode(own_cache / "ab")] == [0o700, 0o700]
        assert mode(own_cache / "ab" / "ab12.island") == 0o600
        assert read("ab12") is not None

    @pytest.mark.parametrize("writable", [0o720, 0o702])
    @pytest.mark.parametrize("place", ["", "ab"])
    def test_a_directory_that_others_may_write_to_is_not_used(self, place, writable, own_cache, caplog):
        write("ab12", artifact())
        (own_cache / place).chmod(writable)
        assert read("ab12") is None
        write("ab34", artifact())
        assert [path.stem for path in entries(own_cache)] == ["ab12"]
        assert caplog.text.count("is not used") == 1
        assert "chmod go-w" in caplog.text

    def test_an_entry_that_others_may_write_is_removed(self, own_cache):
        write("ab12", artifact())
        (own_cache / "ab" / "ab12.island").chmod(0o666)
        assert read("ab12") is None
        assert entries(own_cache) == []

    def test_an_entry_of_another_user_is_not_read(self, own_cache, monkeypatch):
        write("ab12", artifact())
        entry = own_cache / "ab" / "ab12.island"
        found = os.stat(entry)
        other = os.stat_result((*found[:4], 12345, *found[5:]))
        monkeypatch.setattr(os, "fstat", lambda descriptor: other)
        assert read("ab12") is None

    def test_a_directory_of_another_user_is_not_used(self, monkeypatch, caplog):
        write("ab12", artifact())
        real = os.stat

        def of_another(path, **kwargs):
            found = real(path, **kwargs)
            return os.stat_result((*found[:4], 12345, *found[5:]))

        monkeypatch.setattr(os, "stat", of_another)
        assert read("ab12") is None
        assert "belongs to another user" in caplog.text

    def test_where_there_are_no_owners_it_works_as_it_is(self, monkeypatch):
        monkeypatch.delattr(os, "geteuid")
        write("ab12", artifact())
        assert read("ab12") is not None


@owners
class TestKindsOfFile:
    def test_a_pipe_is_not_waited_for(self, own_cache):
        write("ab12", artifact())
        path = own_cache / "ab" / "ab12.island"
        path.unlink()
        os.mkfifo(path, 0o600)
        assert read("ab12") is None
        assert not path.exists()

    def test_a_link_is_not_followed(self, own_cache, tmp_path):
        write("ab12", artifact())
        path = own_cache / "ab" / "ab12.island"
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        assert read("ab12") is None
        assert (tmp_path / "elsewhere").exists()

    def test_a_directory_in_an_entry_s_place_costs_the_entry(self, own_cache):
        write("ab12", artifact())
        path = own_cache / "ab" / "ab12.island"
        path.unlink()
        path.mkdir()
        assert read("ab12") is None
        write("ab12", artifact())  # cannot replace it, and logs that


@pytest.mark.parametrize(
    "head",
    [
        b'{"bytes": 1000000000000, "magic": "torchport-island-2", "properties": {}, "digest": ""}\n',
        b'{"bytes": 64.0, "magic": "torchport-island-2", "properties": 7, "digest": ""}\n',
        b"[" * 100_000 + b"\n",
        b'{"properties": ' * 50_000 + b"\n",
        b"1" * 5000 + b"\n",
    ],
)
def test_a_head_that_says_anything_is_removed(head, own_cache):
    write("ab12", artifact())
    [path] = entries(own_cache)
    path.write_bytes(head + b"\0" * 64)
    path.chmod(0o600)
    assert read("ab12") is None
    assert entries(own_cache) == []


def test_a_cache_that_is_read_only_is_still_read(monkeypatch):
    write("ab12", artifact())

    def read_only(*_args, **_kwargs):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    assert read("ab12") is not None


def test_what_killed_processes_left_counts_and_goes(own_cache, monkeypatch):
    write("aa1", artifact(1000))
    old, young = own_cache / "aa" / ".writing-old", own_cache / "aa" / ".writing-young"
    for path in (old, young):
        path.write_bytes(b"\0" * 3000)
    os.utime(old, (1000, 1000))
    os.utime(cache._path("aa1"), (time.time() - 100,) * 2)
    monkeypatch.setenv("TORCHPORT_CACHE_BYTES", "5000")
    write("bb2", artifact(1000))
    assert not old.exists()
    assert young.exists()  # another process may be writing it
    assert [path.stem for path in entries(own_cache)] == ["bb2"]  # with the young one, both were too much


class TestWrongEntries:
    """An entry that is wrong although its digest matches."""

    def planted(self, own_cache, target, change):
        model = nn.Linear(3, 3).eval()
        other = nn.Linear(3, 3).eval()
        torchport.compile(model, (X,), target=target)
        [path] = entries(own_cache)
        torchport.compile(other, (X,), target=target)
        [wrong] = [entry for entry in entries(own_cache) if entry != path]
        found = change(read(wrong.stem))
        write(path.stem, found)
        return model, path

    def test_another_model_s_entry_is_built_anew_and_no_op_is_blamed(self, own_cache, target, caplog):
        model, path = self.planted(own_cache, target, lambda found: found)
        for _ in range(2):
            compiled = torchport.compile(model, (X,), target=target)
            torch.testing.assert_close(compiled(X), model(X).detach())
            assert compiled.coverage.ops_remain == 0
        assert caplog.text.count("is wrong and is rebuilt") == 1
        assert path.exists()

    def test_one_that_does_not_load_is_built_anew(self, own_cache, target, caplog):
        model, _ = self.planted(
            own_cache, target, lambda found: Artifact(found.payload, {**found.properties, "format": 99})
        )
        for _ in range(2):
            compiled = torchport.compile(model, (X,), target=target, options={"check": False})
            torch.testing.assert_close(compiled(X), model(X).detach())
            assert compiled.coverage.ops_remain == 0
        assert caplog.text.count("does not load and is rebuilt") == 1
