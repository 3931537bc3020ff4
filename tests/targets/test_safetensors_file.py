"""Files of tensors: the safetensors library reads what is written."""

import pytest
import torch
from safetensors.torch import load_file

from torchport.errors import TargetError
from torchport.targets.safetensors_file import write_safetensors


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
