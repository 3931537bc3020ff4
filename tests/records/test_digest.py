"""Digests of buffers: every byte counts, in one piece or in several."""

import hashlib

import numpy
import pytest

from torchport.records import digest_of
from torchport.records.digest import _PIECE


def test_it_is_the_sha256_of_the_length_and_the_pieces():
    data = numpy.arange(_PIECE + 5, dtype=numpy.uint8)
    pieces = [
        hashlib.sha256(data[:_PIECE].tobytes()).digest(),
        hashlib.sha256(data[_PIECE:].tobytes()).digest(),
    ]
    whole = b"torchport.digest/1" + len(data).to_bytes(8, "little") + b"".join(pieces)
    assert digest_of(data.data) == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("place", [0, _PIECE - 1, _PIECE, _PIECE + 4])
def test_each_byte_counts(place):
    data = numpy.zeros(_PIECE + 5, dtype=numpy.uint8)
    before = digest_of(data.data)
    data[place] = 1
    assert digest_of(data.data) != before


def test_a_length_counts():
    assert digest_of(memoryview(b"")) != digest_of(memoryview(b"\0"))
