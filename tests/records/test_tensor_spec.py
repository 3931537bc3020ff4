"""The shape, dtype and memory order of a tensor."""

import torch

from torchport.records import ITEM_SIZES, TensorSpec


def test_elements_and_bytes():
    spec = TensorSpec((2, 3, 5), "float16")
    assert (spec.elements, spec.bytes) == (30, 60)


def test_a_single_number_is_one_element_and_an_empty_tensor_none():
    assert TensorSpec((), "int64").bytes == 8
    assert TensorSpec((4, 0), "int64").bytes == 0


def test_item_sizes_are_those_of_torch():
    for name, size in ITEM_SIZES.items():
        assert getattr(torch, name).itemsize == size, name


def test_it_reads_as_dtype_and_shape():
    assert str(TensorSpec((1, 3), "bool")) == "bool[1, 3]"


def test_it_survives_json():
    spec = TensorSpec((2, 3), "float32", (1, 0))
    assert TensorSpec.from_json(spec.to_json()) == spec
