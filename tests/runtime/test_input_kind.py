"""Which inputs a program accepts."""

import pytest
import torch

from torchport.runtime.input_kind import InputKind, autocast_key
from torchport.structure import flatten_call


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("switched", ["cpu", "cuda"])
def test_the_autocast_state_of_the_inputs_device_applies(device, switched):
    key = (torch.Size([2]), torch.float32, torch.device(device), None)
    kind = InputKind(flatten_call((torch.ones(2),), {}).structure, (key,), autocast_key(device))
    assert kind.fits_autocast()
    torch.set_autocast_enabled(switched, True)
    try:
        assert kind.fits_autocast() == (device != switched)
    finally:
        torch.set_autocast_enabled(switched, False)


def test_tensors_like_the_last_match_are_still_checked():
    wide = torch.ones(4, 4)
    kind = InputKind.of(flatten_call((wide,), {}).structure, [wide]).with_open_sizes([(-1, 4)], [True])
    assert kind.fits_leaves([wide])
    assert kind.fits_leaves([torch.zeros(4, 4)])
    assert not kind.fits_leaves([wide.t()])  # not contiguous
    assert not kind.fits_leaves([wide.double()])
    assert not kind.fits_leaves([torch.ones(4, 5)])
    assert not kind.fits_leaves([wide, wide])
    assert not kind.fits_leaves([wide.to("meta")])
    assert kind.fits_leaves([torch.ones(7, 4)])
    assert kind.fits_leaves([wide])
