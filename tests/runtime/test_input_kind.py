"""Which inputs a program is used for."""

import pytest
import torch

from torchport.runtime.input_kind import InputKind, autocast_key
from torchport.structure import flatten_call


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("switched", ["cpu", "cuda"])
def test_the_autocast_of_the_inputs_device_counts(device, switched):
    key = (torch.Size([2]), torch.float32, torch.device(device), None)
    kind = InputKind(flatten_call((torch.ones(2),), {}).structure, (key,), autocast_key(device))
    assert kind.fits_autocast()
    torch.set_autocast_enabled(switched, True)
    try:
        assert kind.fits_autocast() == (device != switched)
    finally:
        torch.set_autocast_enabled(switched, False)
