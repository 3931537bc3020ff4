import pytest
import torch

from torchport.verification import tensor_bytes

VALUES = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "tensor",
    [
        VALUES,
        VALUES.t(),
        VALUES[1:, 2],
        VALUES[1],
        torch.tensor(2.5),
        torch.tensor(2.5).expand(1),  # a stride of 0
        VALUES[::3, ::4][:1],
        torch.ones(0, 3),
        torch.complex(VALUES, VALUES).conj(),
        VALUES.to(torch.bfloat16),
        VALUES > 3,
    ],
    ids=str,
)
def test_bytes_are_those_of_the_elements_in_order(tensor):
    found = tensor_bytes(tensor)
    assert found.dtype == torch.uint8
    expected = torch.tensor(tensor.tolist(), dtype=tensor.dtype).reshape(tensor.shape)
    assert torch.equal(found.view(tensor.dtype).reshape(tensor.shape), expected)


def test_memory_is_shared_where_it_is_contiguous():
    assert tensor_bytes(VALUES[1]).data_ptr() == VALUES[1].data_ptr()
