"""Whether a target takes an op, and if not, why not and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torchport.records.record import Record

Reason = Literal[
    "supported",
    "no_lowering",  # the target has no lowering for this op
    "dtype",  # the op is supported, but not for this dtype
    "argument",  # the op is supported, but not with this argument
    "shape",  # the op is supported, but not for this shape
    "integer_range",  # the values may overflow the target's narrower integers
    "random",  # the result is random, and the target's generator is not torch's
    "alias",  # the result shares memory with an input, a weight or another output
    "not_a_tensor",  # the result is not a tensor
    "kept_by_option",  # the user's options keep it on the host
    "island_too_small",  # its island has fewer ops than min_island_size
    "build_failed",  # the target failed to build the island
    "inaccurate",  # the built island's results did not match eager on the example inputs
    "slower",  # the built island took longer than eager on the example inputs
]
REASONS: tuple[str, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """A target's answer for one op.

    Args:
        ok: whether the target takes it.
        reason: one of the codes in `REASONS`.
        detail: an explanation, in one sentence.
        remedy: what would change the answer.
    """

    ok: bool
    reason: Reason = "supported"
    detail: str = ""
    remedy: str = ""


SUPPORTED = Verdict(True)
