"""What torch knows of tensors is read from where torch keeps it, and any change of it is seen."""

import threading

import pytest
import torch
from torch import nn

from torchport.structure import tensor_words
from torchport.structure.tensor_words import TensorWords, is_readable


@pytest.fixture(scope="module")
def layout():
    found = tensor_words.layout()
    assert found is not None, "this torch keeps what it knows of a tensor where it is not found"
    return found


def written_in_another_thread(tensor):
    thread = threading.Thread(target=lambda: tensor.detach().mul_(2))
    thread.start()
    thread.join()


CHANGES = {
    "in place": lambda t: t.detach().mul_(2),
    "through a view": lambda t: t.detach()[1:, :1].zero_(),
    "in another thread": written_in_another_thread,
    "data replaced": lambda t: setattr(t, "data", torch.ones(2, 3)),
    "data of another shape": lambda t: setattr(t, "data", t.data.view(3, 2)),
    "data of other strides": lambda t: setattr(t, "data", t.data.as_strided((2, 3), (1, 2))),
    "data from another place": lambda t: setattr(t, "data", torch.ones(4, 3)[1:3]),
    "another number of dimensions": lambda t: setattr(t, "data", t.data.view(2, 3, 1)),
    "memory given back": lambda t: t.untyped_storage().resize_(0),
    "memory moved": lambda t: t.untyped_storage().resize_(1 << 22),
    "optimizer": lambda t: torch.optim.SGD([_with_gradient(t)], lr=1.0).step(),
}


def _with_gradient(tensor):
    leaf = tensor.detach()
    leaf.grad = torch.ones_like(leaf)
    return leaf


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "make", [torch.ones, lambda *size: nn.Parameter(torch.ones(*size))], ids=["plain", "p"]
)
def test_a_change_is_seen(layout, make, change):
    tensors = [make(2, 3), make(2, 3), make(2, 3)]
    words = TensorWords(tensors, layout)
    others = TensorWords([tensors[0], tensors[2]], layout)
    change(tensors[1])
    assert not words.unchanged()
    assert others.unchanged()


def test_tensors_that_change_places_are_seen(layout):
    one, two = torch.ones(2), torch.ones(2)
    words = TensorWords([one, two], layout)
    torch.utils.swap_tensors(one, two)
    assert not words.unchanged()


def test_reading_and_holding_are_no_change(layout):
    tensors = [torch.rand(shape) for shape in ((), (0,), (3,), (2, 3), (1, 2, 3, 4, 5))]
    tensors.append(nn.Parameter(torch.rand(3, 4)))
    words = TensorWords(tensors, layout)
    kept = [(tensor, tensor.detach(), tensor.sum(), tensor.numpy(force=True)) for tensor in tensors]
    (tensors[-1] * 2).sum().backward()
    assert words.unchanged()
    assert kept


def test_tensors_made_under_inference_mode(layout):
    with torch.inference_mode():
        tensor = torch.ones(3)
    words = TensorWords([tensor], layout)
    assert words.unchanged()
    tensor.untyped_storage().resize_(1 << 20)
    assert not words.unchanged()


def test_no_tensors(layout):
    assert TensorWords([], layout).unchanged()


class Subclass(torch.Tensor):
    pass


def test_only_plain_tensors_are_read():
    assert is_readable(torch.ones(2))
    assert is_readable(nn.Parameter(torch.ones(2)))
    assert not is_readable(torch.ones(1, 1, 1, 1, 1, 1))
    assert not is_readable(torch.ones(2, device="meta"))
    assert not is_readable(torch.ones(2).to_sparse())
    assert not is_readable(torch.ones(2).as_subclass(Subclass))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, lambda: torch.device("meta")], ids=[
    "inference_mode", "no_grad", "another device"
])  # fmt: skip
def test_where_it_is_is_found_whatever_mode_is_on(layout, mode):
    tensor_words.layout.cache_clear()
    with mode():
        assert tensor_words.layout() == layout
