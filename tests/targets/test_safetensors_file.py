"""Files of tensors: the safetensors library can read what is written."""

import weakref

import numpy
import pytest
import torch
from safetensors.torch import load_file

from torchport.errors import TargetError
from torchport.targets.safetensors_file import read_safetensors, safetensors_bytes, write_safetensors


def test_the_library_reads_it(tmp_path):
    tensors = {
        "a": torch.rand(3, 4),
        "b": torch.tensor(7),
        "c": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 5),
        "half": torch.rand(5).to(torch.bfloat16),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "wide": torch.rand(2).double(),
    }
    write_safetensors(tensors, tmp_path / "t.safetensors")
    again = load_file(tmp_path / "t.safetensors")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype is tensor.dtype
        assert torch.equal(again[name], tensor)


def test_a_dtype_without_a_place_is_refused(tmp_path):
    with pytest.raises(TargetError, match="complex64 cannot be stored"):
        write_safetensors({"z": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "t.safetensors")


def test_values_that_are_given_by_name_are_not_in_memory_all_at_once():
    given = []

    def values(name):
        assert sum(memory() is not None for memory in given) <= 1
        memory = numpy.full(4, float(name[-1]), dtype=numpy.float32)
        given.append(weakref.ref(memory))
        return torch.from_numpy(memory)

    shapes = {f"t{place}": torch.empty(4, device="meta") for place in range(4)}
    read = read_safetensors(safetensors_bytes(shapes, values=values))
    assert {name: tensor.tolist() for name, tensor in read.items()} == {
        f"t{place}": [place] * 4 for place in range(4)
    }
    assert len(given) == 4
