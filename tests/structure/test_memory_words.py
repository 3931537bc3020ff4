"""Words of memory, read from many places at once."""

import ctypes

import numpy
import pytest
import torch

from torchport.structure.memory_words import MemoryWords


@pytest.mark.parametrize(("size", "kind"), [(4, numpy.uint32), (8, numpy.uint64)])
def test_words_of_objects_that_lie_far_apart(size, kind):
    arrays = [numpy.arange(count, dtype=kind) + count for count in (3, 1 << 20, 7, 1)]
    addresses = [array.ctypes.data + (len(array) // 2) * size for array in arrays]
    words = MemoryWords(addresses, size)
    assert words.read().tolist() == [int(array[len(array) // 2]) for array in arrays]
    arrays[1][1 << 19] = 5
    assert words.read()[1] == 5


def test_a_stack_variable_and_a_tensor():
    number, tensor = ctypes.c_uint32(7), torch.tensor([1, 2, 3], dtype=torch.int32)
    words = MemoryWords([tensor.data_ptr() + 4, ctypes.addressof(number)], 4)
    assert words.read().tolist() == [2, 7]
    tensor[1] = 9
    number.value = 8
    assert words.read().tolist() == [9, 8]


def test_an_address_between_two_words_is_rounded_down():
    array = numpy.array([1, 2], dtype=numpy.uint32)
    assert MemoryWords([array.ctypes.data + 6], 4).read().tolist() == [2]


def test_none_at_all():
    assert MemoryWords([], 8).read().tolist() == []
