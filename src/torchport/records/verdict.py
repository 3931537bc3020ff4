"""Whether a target takes an op, and if not, why and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torchport.records.record import Record

Reason = Literal[
    "supported",
    "no_lowering",  # the target has nothing that computes this op
    "dtype",  # the op is known, not on this dtype
    "argument",  # the op is known, not with this argument
    "shape",  # the op is known, not on this shape
    "integer_range",  # the target's integers are narrower than the values could be
    "random",  # the result is random: the target's generator is not torch's
    "alias",  # the result shares memory with an input, a weight or another output
    "not_a_tensor",  # the result is not a tensor
    "kept_by_option",  # the user asked for it to stay
    "island_too_small",  # fewer ops than min_island_size
    "build_failed",  # the target's compiler refused the island
    "inaccurate",  # the built island did not equal eager on the example inputs
    "slower",  # the built island took longer than eager on the example inputs
]
REASONS: tuple[str, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """A target's answer for one op.

    Args:
        ok: whether the target takes it.
        reason: a code out of `REASONS`.
        detail: one sentence for a person.
        remedy: what would change the answer.
    """

    ok: bool
    reason: Reason = "supported"
    detail: str = ""
    remedy: str = ""


SUPPORTED = Verdict(True)
