"""A tensor's elements as bytes, to store, digest or compare them."""

from __future__ import annotations

import torch


def tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a CPU tensor in order, as one-dimensional uint8.

    Shares the tensor's memory if it is contiguous.
    """
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # A contiguous tensor of one element may have any stride, but only with a stride of 1 can it be viewed.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)
