"""Fake kernels that torch lacks; without them, it infers shapes by running an op, so only for fixed sizes."""

from __future__ import annotations

import contextlib
import functools

import torch

_FAKE_QUANTIZE = (
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)


def _like_the_input(self: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


@functools.cache
def register_fake_kernels() -> None:
    """Register them, for the whole process."""
    for name in _FAKE_QUANTIZE:
        with contextlib.suppress(RuntimeError):  # a later torch may have its own
            torch.library.register_fake(f"aten::{name}", _like_the_input)
