"""Ops that make tensors; those of fixed shape and value are folded before any verdict is asked."""

from __future__ import annotations

from torchport.targets.openvino.rules import takes

takes("full.default full_like.default zeros_like.default ones_like.default", "fib")
takes("arange.start_step", "fi")
