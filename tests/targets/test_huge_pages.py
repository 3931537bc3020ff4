"""Memory that is taken is moved into huge pages, holds what it held, and what was there before stays."""

import ctypes
import mmap
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
    """Return how many bytes of the mappings around a place are in huge pages; None if nobody says so."""
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
    """Return memory that nobody has asked to be in huge pages, as numpy does for its own."""
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return numpy.frombuffer(room, dtype=numpy.uint8)


def _can_be_moved(size):
    """Whether this system moves as much memory now: asked without the code that is tested."""
    values = _room(size)
    values[:] = 1
    start, end = (-(-values.ctypes.data // (2 * MIB)) * 2 * MIB, values.ctypes.data + size)
    return (
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start >> 21 << 21), 25) == 0
    )


def test_what_was_taken_is_moved_and_holds_what_it_held():
    before = _room(WORTHWHILE)
    before[:] = 3
    is_possible = bool(huge_pages.huge_page_size()) and _can_be_moved(2 * WORTHWHILE)
    taken = TakenMemory()
    values = _room(2 * WORTHWHILE)
    values[:] = numpy.arange(len(values), dtype=numpy.uint64).astype(numpy.uint8)
    moved = taken.move_to_huge_pages()
    assert numpy.array_equal(values, numpy.arange(len(values), dtype=numpy.uint64).astype(numpy.uint8))
    assert (before == 3).all()
    if is_possible:
        assert WORTHWHILE < moved <= 4 * WORTHWHILE
        assert _in_huge_pages(values.ctypes.data, values.nbytes) > WORTHWHILE
        assert taken.move_to_huge_pages() == 0  # nothing more was taken
    elif not huge_pages.huge_page_size():
        assert moved == 0


def test_memory_that_is_not_in_use_stays_so():
    taken = TakenMemory()
    values = _room(8 * WORTHWHILE)  # the system gives pages when they are written
    values[: 2 * WORTHWHILE] = 1
    assert taken.move_to_huge_pages() < 3 * WORTHWHILE
    assert not values[2 * WORTHWHILE :].any()


def test_little_memory_is_left_alone():
    taken = TakenMemory()
    values = _room(WORTHWHILE // 4)
    values[:] = 1
    assert taken.move_to_huge_pages() == 0
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


def test_an_island_with_large_weights_is_moved_when_it_first_ran(monkeypatch):
    calls = []

    class Taken:
        def move_to_huge_pages(self):
            calls.append("moved")

    monkeypatch.setattr(load, "TakenMemory", Taken)
    options = {"cache": False, "speed_trial": False, "threads": 1}
    for width, expected in ((64, []), (3000, ["moved"])):
        x = torch.randn(2, width)
        compiled = torchport.compile(nn.Linear(width, 3000).eval(), (x,), target="openvino", options=options)
        assert calls == expected
        compiled(x)
        compiled(x)
        assert calls == expected
