"""Newly allocated memory is moved into huge pages and keeps its contents; older memory stays."""

import mmap
import platform
import sys

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.targets import huge_pages
from torchport.targets.huge_pages import WORTHWHILE, TakenMemory
from torchport.targets.openvino import load

MIB = 1 << 20
MAPS = """\
5600-5700 rw-p 00000000 00:00 0                          [heap]
5700-5800 rw-p 00000000 08:01 77                         /usr/lib/some library.so
7f00-7f80 rw-p 00000000 00:00 0
7f80-7f90 r--p 00000000 00:00 0
7f90-7fa0 rw-s 00000000 00:01 12                         /dev/shm/a
7fa0-7fb0 rw-p 00000000 00:00 0                          [stack]
"""


def _in_huge_pages(address, size):
    """Return how many bytes of the mappings around an address are in huge pages; None if unknown."""
    inside, total = False, 0
    try:
        with open("/proc/self/smaps") as file:
            for line in file:
                first, *rest = line.split()
                if not first.endswith(":"):
                    start, _, end = first.partition("-")
                    inside = int(start, 16) < address + size and int(end, 16) > address
                elif first == "AnonHugePages:" and inside:
                    total += int(rest[0]) * 1024
    except OSError:
        return None
    return total


def _room(size):
    """Return memory for which no huge pages were requested, as numpy does for its own."""
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return numpy.frombuffer(room, dtype=numpy.uint8)


class _Library:
    """A fake of the system calls: those that move memory are recorded, and refused for some blocks."""

    def __init__(self, refused=lambda start, size: False):
        self.refused, self.asked = refused, []
        self.mincore = huge_pages._library().mincore

    def madvise(self, start, size, advice):
        self.asked.append((start, start + size))
        return -1 if self.refused(start, size) else 0


def _covered(ranges, values):
    """Return how many bytes of an array the ranges cover."""
    start, end = values.ctypes.data, values.ctypes.data + values.nbytes
    return sum(max(min(last, end) - max(first, start), 0) for first, last in ranges)


@pytest.fixture
def library(monkeypatch):
    made = _Library()
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux says what memory a process has")
    monkeypatch.setattr(huge_pages, "huge_page_size", lambda: 2 * MIB)
    monkeypatch.setattr(huge_pages, "_library", lambda: made)
    return made


def test_what_was_taken_is_moved_and_nothing_else(library):
    before = _room(2 * WORTHWHILE)
    before[:] = 3
    taken = TakenMemory()
    values = _room(2 * WORTHWHILE)
    values[:] = 1
    moved = taken.settle()
    assert _covered(library.asked, values) >= 2 * WORTHWHILE - 4 * MIB
    assert _covered(library.asked, before) == 0
    assert moved == sum(last - first for first, last in library.asked)
    library.asked.clear()
    assert taken.settle() == 0  # nothing more was allocated
    assert library.asked == []


def test_what_the_system_refuses_is_moved_block_by_block(library):
    taken = TakenMemory()
    values = _room(2 * WORTHWHILE)
    values[:] = 1
    odd = -(-values.ctypes.data // (2 * MIB)) * 2 * MIB + 6 * MIB
    library.refused = lambda start, size: start <= odd < start + size
    moved = taken.settle()
    blocks = [(first, last) for first, last in library.asked if not first <= odd < last]
    assert (odd, odd + 2 * MIB) in library.asked
    assert moved == sum(last - first for first, last in blocks)
    assert _covered(blocks, values) >= 2 * WORTHWHILE - 6 * MIB


def test_memory_that_is_moved_holds_what_it_held():
    before = _room(WORTHWHILE)
    before[:] = 3
    taken = TakenMemory()
    values = _room(2 * WORTHWHILE)
    values[:] = numpy.arange(len(values), dtype=numpy.uint64).astype(numpy.uint8)
    moved = taken.settle()
    assert numpy.array_equal(values, numpy.arange(len(values), dtype=numpy.uint64).astype(numpy.uint8))
    assert (before == 3).all()
    assert moved == 0 or huge_pages.huge_page_size()
    if moved > 3 * WORTHWHILE // 2:  # how much is moved is up to the system
        assert _in_huge_pages(values.ctypes.data, values.nbytes)


def test_memory_that_is_not_in_use_stays_so():
    taken = TakenMemory()
    values = _room(8 * WORTHWHILE)  # pages are allocated when they are written
    values[: 2 * WORTHWHILE] = 1
    assert taken.settle() < 3 * WORTHWHILE
    assert not values[2 * WORTHWHILE :].any()


def test_little_memory_is_left_alone():
    taken = TakenMemory()
    values = _room(WORTHWHILE // 4)
    values[:] = 1
    assert taken.settle() == 0
    assert values.all()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can return what it keeps")
@pytest.mark.parametrize("size", [0, 2 * MIB], ids=["without huge pages", "with huge pages"])
def test_what_is_free_is_returned_first(size, library, monkeypatch):
    monkeypatch.setattr(huge_pages, "huge_page_size", lambda: size)
    taken = TakenMemory()
    blocks = [bytearray(b"1" * 60_000) for _ in range(2000)]
    values = _room(2 * WORTHWHILE)
    values[:] = 1
    del blocks[:-1]  # the last one keeps the others from being returned by themselves
    before = huge_pages._resident()
    taken.settle()
    assert before - huge_pages._resident() > 100_000_000
    assert values.all()


@pytest.mark.parametrize(
    ("enabled", "size", "expected"),
    [
        ("always [madvise] never", "2097152", 2 * MIB),
        ("[always] madvise never", "2097152", 2 * MIB),
        ("always madvise [never]", "2097152", 0),
        ("always [madvise] never", "536870912", 0),  # with pages of 64 KiB, more than any weight has
        ("always [madvise] never", "something", 0),
        (None, None, 0),
    ],
)
def test_the_system_says_whether_there_are_huge_pages(enabled, size, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    if enabled is not None:
        (tmp_path / "enabled").write_text(enabled)
        (tmp_path / "hpage_pmd_size").write_text(size)
    assert huge_pages.huge_page_size.__wrapped__() == expected


def test_only_memory_of_no_file_is_looked_at():
    found = list(huge_pages._read_mappings(MAPS.splitlines()))
    assert found == [(0x5600, 0x5700), (0x7F00, 0x7F80)]


@pytest.mark.parametrize(
    ("ranges", "others", "expected"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(0, 4)], [(4, 10)]),
        ([(0, 10)], [(3, 5), (7, 8)], [(0, 3), (5, 7), (8, 10)]),
        ([(0, 10), (20, 30)], [(5, 25)], [(0, 5), (25, 30)]),
        ([(0, 10), (20, 30)], [(12, 14)], [(0, 10), (20, 30)]),
    ],
)
def test_what_was_there_before_is_left_out(ranges, others, expected):
    assert list(huge_pages._without(ranges, others)) == expected


@pytest.mark.parametrize(
    ("place", "expected"), [((0, 8), [(0, 8)]), ((1, 12), [(4, 12)]), ((1, 7), []), ((3, 9), [(4, 8)])]
)
def test_whole_pages_are_moved(place, expected):
    assert list(huge_pages._aligned([place], 4)) == expected


def test_memory_settles_when_an_island_with_large_weights_first_ran(monkeypatch):
    calls = []

    class Taken:
        def settle(self):
            calls.append("settled")

    monkeypatch.setattr(load, "TakenMemory", Taken)
    options = {"cache": False, "speed_trial": False, "threads": 1}
    for width, expected in ((64, []), (3000, ["settled"])):
        x = torch.randn(2, width)
        compiled = torchport.compile(nn.Linear(width, 3000).eval(), (x,), target="openvino", options=options)
        assert calls == expected
        compiled(x)
        compiled(x)
        assert calls == expected
