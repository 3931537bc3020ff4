"""The disk cache: a hit skips the build, and no file in it can do harm."""

import dataclasses
import gc
import mmap
import multiprocessing
import os
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import torchport
from compiler.graphs import plan
from torchport.compiler import cache
from torchport.compiler.cache import island_key, read, write
from torchport.targets import Artifact, find
from torchport.targets.host import HostTarget
from torchport.targets.mapped_payload import release_pages
from torchport.targets.openvino import OpenVinoTarget
from torchport.targets.user_directory import cache_directory

X = torch.ones(1, 3)


@pytest.fixture
def builds(monkeypatch):
    """Counts how often a target really builds."""
    counted = []
    for kind in (HostTarget, OpenVinoTarget):

        def build(self, island, options, build=kind.build):
            counted.append(island.name)
            return build(self, island, options)

        monkeypatch.setattr(kind, "build", build)
    return counted


def entries(folder):
    return sorted(folder.glob("*/*.island"))


def artifact(size=64, **properties):
    return Artifact(numpy.arange(size, dtype=numpy.uint8), properties)


class TestCompiling:
    def test_a_hit_skips_the_build(self, builds, target, own_cache):
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
        for _ in range(3):
            compiled = torchport.compile(model, (X,), target=target)
            torch.testing.assert_close(compiled(X), model(X).detach())
        assert len(builds) == 1
        assert len(entries(own_cache)) == 1

    def test_a_copy_of_the_model_hits(self, builds, target):
        model = nn.Linear(3, 3).eval()
        copy = nn.Linear(3, 3).eval()
        copy.load_state_dict(model.state_dict())
        for each in (model, copy):
            torchport.compile(each, (X,), target=target)
        assert len(builds) == 1

    def test_torch_compile_hits_what_was_built_before(self, builds, target, torch_compile):
        model = nn.Linear(3, 3).eval()
        for _ in range(2):
            with torch.no_grad():
                torch.testing.assert_close(torch_compile(model, target)(X), model(X))
        assert len(builds) == 1

    def test_a_changed_constant_with_the_same_topology_misses(self, builds, target):
        models = [nn.Linear(3, 3).eval() for _ in range(2)]
        for model in models:
            torch.testing.assert_close(torchport.compile(model, (X,), target=target)(X), model(X).detach())
        assert len(builds) == 2
        for factor in (2.0, 3.0):
            compiled = torchport.compile(lambda x, factor=factor: x * factor, (X,), target=target)
            assert compiled(X).tolist() == [[factor] * 3]
        assert len(builds) == 4

    def test_one_changed_element_misses(self, builds):
        model = nn.Linear(3, 3).eval()
        torchport.compile(model, (X,), target="host")
        with torch.no_grad():
            model.weight[2, 2] += 1e-7
        torchport.compile(model, (X,), target="host")
        assert len(builds) == 2

    def test_another_torch_misses(self, builds, target, monkeypatch):
        model = nn.Linear(3, 3).eval()
        torchport.compile(model, (X,), target=target)
        monkeypatch.setattr(torch, "__version__", "99.0")
        torchport.compile(model, (X,), target=target)
        assert len(builds) == 2

    def test_it_can_be_switched_off(self, builds, target, own_cache):
        for _ in range(2):
            torchport.compile(nn.ReLU(), (X,), target=target, options={"cache": False})
        assert len(builds) == 2
        assert entries(own_cache) == []

    def test_a_damaged_entry_is_built_anew(self, builds, target, own_cache):
        model = nn.Linear(3, 3).eval()
        torchport.compile(model, (X,), target=target)
        gc.collect()  # or the loaded entry would be used again
        [path] = entries(own_cache)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        torch.testing.assert_close(torchport.compile(model, (X,), target=target)(X), model(X).detach())
        assert len(builds) == 2
        assert read(path.stem) is not None

    def test_a_directory_that_cannot_be_written_costs_nothing_but_the_entry(
        self, target, tmp_path, monkeypatch, caplog
    ):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "file" / "cache"))
        model = nn.Linear(3, 3).eval()
        torch.testing.assert_close(torchport.compile(model, (X,), target=target)(X), model(X).detach())
        assert "is not kept in the cache" in caplog.text


class TestKeys:
    """A key covers everything that a built island depends on, and nothing else."""

    @staticmethod
    def key(function, *args, target="openvino", **options):
        [piece] = plan(function, *args, target=target, **options).pieces.values()
        found = find(target)
        return island_key(piece.island, found, found.make_options(options))

    def test_the_same_function_has_the_same_key(self):
        def model(x, y):
            return torch.relu(x) + y

        def renamed(first, second):
            activated = torch.relu(first)
            return activated + second

        assert self.key(model, X, X.clone()) == self.key(renamed, X, X.clone())

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            ((torch.relu, X), (torch.tanh, X)),
            ((torch.relu, X), (torch.relu, torch.ones(2, 3))),
            ((lambda x: x + 1, X), (lambda x: x + 2, X)),
            ((lambda x: x.sum(0), X), (lambda x: x.sum(1), X)),
            ((lambda x, y: (x - y) * x, X, X.clone()), (lambda x, y: (x - y) * y, X, X.clone())),
            ((lambda x: x + torch.ones(3), X), (lambda x: x + torch.zeros(3), X)),
        ],
    )
    def test_another_function_has_another_key(self, left, right):
        assert self.key(*left) != self.key(*right)

    def test_other_bounds_of_an_input_have_another_key(self):
        # The same embedding, but the index was either clamped on the host or is an unbounded input.
        table = torch.ones(10, 2)

        def plain(ids):
            return torch.nn.functional.embedding(ids, table)

        def also_small(ids):
            return torch.nn.functional.embedding(ids, table), torch.nn.functional.embedding(
                ids, table[:5] + 0
            )

        ids = torch.tensor([1])
        assert self.key(plain, ids) != self.key(also_small, ids)

    def test_options_that_change_the_build_count_and_others_do_not(self):
        plain = self.key(torch.relu, X)
        assert self.key(torch.relu, X, threads=2) != plain
        assert self.key(torch.relu, X, config={"NUM_STREAMS": 1}) != plain
        assert self.key(torch.relu, X, check=False) == plain
        assert self.key(torch.relu, X, keep_ops=["aten.tanh"]) == plain

    def test_the_target_and_its_version_count(self, monkeypatch):
        plain = self.key(torch.relu, X)
        assert self.key(torch.relu, X, target="host") != plain
        monkeypatch.setattr(OpenVinoTarget, "version", lambda self: "99")
        assert self.key(torch.relu, X) != plain

    def test_the_version_of_torchport_counts(self, monkeypatch):
        plain = self.key(torch.relu, X)
        monkeypatch.setattr(cache, "__version__", "99")
        assert self.key(torch.relu, X) != plain

    def test_the_target_s_format_counts(self, monkeypatch):
        plain = self.key(torch.relu, X)
        monkeypatch.setattr(OpenVinoTarget, "build_format", 99)
        assert self.key(torch.relu, X) != plain


class TestEntries:
    def test_an_entry_survives(self):
        write("ab12", artifact(limits={"0": [0, 9]}))
        found = read("ab12")
        assert found.payload.tolist() == list(range(64))
        assert found.properties == {"limits": {"0": [0, 9]}}

    def test_there_is_none_where_none_was_written(self, caplog):
        assert read("ab12") is None
        assert caplog.text == ""

    def test_a_flipped_byte_anywhere_is_noticed(self, own_cache):
        write("ab12", artifact(limits={"0": [0, 9]}))
        [path] = entries(own_cache)
        whole = path.read_bytes()
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 0b10
            path.write_bytes(damaged)
            found = read("ab12")
            assert found is None or dataclasses.astuple(found)[1] == {"limits": {"0": [0, 9]}}, place
            assert found is None or found.payload.tolist() == list(range(64)), place

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
    def test_a_truncated_entry_is_noticed(self, share, own_cache, caplog):
        write("ab12", artifact())
        [path] = entries(own_cache)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        assert read("ab12") is None
        assert "is rebuilt" in caplog.text

    @pytest.mark.parametrize(
        "head", [b"[]\n", b"{}\n", b'{"bytes": -1}\n', b'{"bytes": 1e99}\n', b"\xff\n", b"null\n"]
    )
    def test_what_is_no_entry_is_passed_over(self, head, own_cache):
        write("ab12", artifact())
        [path] = entries(own_cache)
        path.write_bytes(head + b"\n" + b"\0" * 64)
        assert read("ab12") is None

    def test_nothing_is_left_of_a_write_that_fails(self, own_cache, monkeypatch, caplog):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        write("ab12", artifact())
        assert "No space left" in caplog.text
        assert [path for path in own_cache.rglob("*") if path.is_file()] == []

    def test_the_longest_unused_go_first(self, own_cache, monkeypatch):
        for age, key in enumerate(["aa1", "bb2", "cc3", "dd4"]):
            write(key, artifact(1000))
            os.utime(cache._path(key), (1000 + age, 1000 + age))
        assert read("aa1") is not None  # now the most recently used
        monkeypatch.setenv("TORCHPORT_CACHE_BYTES", "4000")
        write("ee5", artifact(1000))
        kept = {path.stem for path in entries(own_cache)}
        assert kept == {"aa1", "dd4", "ee5"}

    def test_what_was_just_written_is_kept_whatever_its_size(self, own_cache, monkeypatch):
        monkeypatch.setenv("TORCHPORT_CACHE_BYTES", "10")
        write("aa1", artifact(1000))
        write("bb2", artifact(1000))
        assert [path.stem for path in entries(own_cache)] == ["bb2"]

    def test_a_limit_that_is_no_number_is_the_default(self, monkeypatch):
        monkeypatch.setenv("TORCHPORT_CACHE_BYTES", "lots")
        assert cache.cache_limit() == 8 * 2**30

    def test_the_directory_is_the_user_s_cache_unless_it_is_given(self, monkeypatch, tmp_path):
        monkeypatch.delenv("TORCHPORT_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_directory() == tmp_path / "torchport"

    def test_a_user_without_a_home_has_one_too(self, monkeypatch):
        def fail():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("TORCHPORT_CACHE_DIR")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", fail)
        assert cache_directory().name == f"torchport_cache_{os.getuid()}"


def write_and_read(seed, failures):
    """Write one entry over and over, and read what this or another process wrote."""
    for _ in range(40):
        write("abcdef", Artifact(numpy.full(100_000, seed, dtype=numpy.uint8), {"seed": seed}))
        found = read("abcdef")
        if found is None or not (found.payload == found.properties["seed"]).all():
            failures.put("half an entry was read")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that start from this one need fork")
def test_several_processes_may_write_the_same_entry(own_cache):
    context = multiprocessing.get_context("fork")
    failures = context.SimpleQueue()
    workers = [context.Process(target=write_and_read, args=(seed, failures)) for seed in (1, 2, 3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert failures.empty()
    assert [path.name for path in own_cache.rglob("*") if path.is_file()] == ["abcdef.island"]


class TestMapping:
    """Payloads are memory-mapped, so that the system can reclaim their memory."""

    @staticmethod
    def _mapping_of(payload):
        base = payload
        while isinstance(base, (numpy.ndarray, memoryview)):
            base = base.base if isinstance(base, numpy.ndarray) else base.obj
        return base

    def test_what_is_read_and_what_was_just_built_is_mapped_and_aligned(self, own_cache):
        key = "ab" + 62 * "0"
        write(key, artifact(200, name="x" * 7))
        found = read(key)
        assert isinstance(self._mapping_of(found.payload), mmap.mmap)
        assert found.payload.ctypes.data % 64 == 0
        assert found.payload.tolist() == list(range(200))
        built = cache._mapped(key, artifact(200, name="x" * 7))
        assert isinstance(self._mapping_of(built.payload), mmap.mmap)

    def test_pages_that_are_given_back_are_there_again(self, own_cache):
        key = "cd" + 62 * "0"
        write(key, artifact(200))
        found = read(key)
        release_pages(found.payload)
        assert found.payload.tolist() == list(range(200))
        plain = artifact(200).payload
        release_pages(plain)
        assert plain.tolist() == list(range(200))

    def test_what_is_kept_otherwise_is_not_taken_for_it(self, own_cache):
        key = "ef" + 62 * "0"
        write(key, artifact(200))
        other = Artifact(numpy.zeros(200, dtype=numpy.uint8), {})
        assert cache._mapped(key, other) is other
        assert cache._mapped("01" + 62 * "0", other) is other
