"""Finds the op at which two runs of one model diverge."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchport.errors import VerificationError
from torchport.records import Record, TensorComparison
from torchport.verification.tensors import compare_tensors
from torchport.verification.tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class Divergence(Record):
    """The first op whose value differs between two runs.

    Args:
        op: its name.
        position: its position in the expected run, from 0.
        last_alike: the last op before it on which both runs agree; empty if there is none.
        comparison: how its value differs.
    """

    op: str
    position: int
    last_alike: str
    comparison: TensorComparison


def first_divergence(
    actual: Iterable[tuple[str, torch.Tensor]],
    expected: Iterable[tuple[str, torch.Tensor]],
    *,
    tolerance: Tolerance | None = None,
) -> Divergence | None:
    """Return the first op, in the order of the expected run, at which two runs diverge.

    Ops are matched by name, so a run that reports only some of them (a device reports none inside an
    island) can be compared with one that reports all. A name that occurs again, as in a loop, is
    matched with its next occurrence.

    Args:
        actual, expected: each run's intermediate values in the order in which they were computed.
        tolerance: as in `compare`.

    Returns:
        The first divergence, or None if every op that both runs have agrees.

    Raises:
        VerificationError: the two runs have no op in common.

    Example:
        >>> good = [("conv", torch.ones(2)), ("relu", torch.ones(2))]
        >>> bad = [("conv", torch.ones(2)), ("relu", torch.zeros(2))]
        >>> first_divergence(bad, good).op
        'relu'
    """
    values: dict[str, deque[torch.Tensor]] = defaultdict(deque)
    for name, value in actual:
        values[name].append(value)
    last_alike = ""
    position = -1
    for position, (name, value) in enumerate(expected):
        if not values.get(name):
            continue
        comparison = compare_tensors(values[name].popleft(), value, path=name, tolerance=tolerance)
        if not comparison.ok:
            return Divergence(name, position, last_alike, comparison)
        last_alike = name
    if not last_alike and (values or position >= 0):
        raise VerificationError("the two runs have no op in common", remedy="use the same op names in both")
    return None
