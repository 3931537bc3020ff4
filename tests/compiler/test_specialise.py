"""Which inputs a program may be used for."""

import pytest
import torch

import torchport
from torchport.runtime.input_kind import key_of
from torchport.structure import flatten_call

IMAGE = torch.ones(1, 3, 4, 4)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (torch.zeros(2, 3), True),
        (torch.ones(6)[:6].view(2, 3), True),
        (torch.ones(3, 3), False),
        (torch.ones(2, 3, dtype=torch.float64), False),
        (torch.ones(3, 2).t(), False),
        (torch.ones(2, 3, device="meta"), False),
    ],
)
def test_a_key_holds_all_but_the_values(other, same):
    assert (key_of(other) == key_of(torch.ones(2, 3))) is same


def test_layouts_are_told_apart():
    assert key_of(IMAGE) != key_of(torch.ones(1, 3, 4, 8)[..., ::2])
    assert key_of(IMAGE.expand(2, 3, 4, 4)) != key_of(torch.ones(2, 3, 4, 4))


def test_a_program_fits_only_its_own_kind_of_call():
    compiled = torchport.compile(lambda x, scale=1: x * scale, (torch.ones(2), 3), target="host")
    fits = compiled._first.fits
    assert fits(flatten_call((torch.zeros(2), 3), {}))
    assert not fits(flatten_call((torch.zeros(2), 4), {}))
    assert not fits(flatten_call((torch.zeros(3), 3), {}))
    assert not fits(flatten_call((torch.zeros(2),), {"scale": 3}))
    with torch.autocast("cpu", torch.bfloat16):
        assert not fits(flatten_call((torch.zeros(2), 3), {}))
