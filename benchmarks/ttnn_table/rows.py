"""The table's rows, and the records of them besides those of `torchport bench`."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchport.records import Coverage
from torchport.records.record import Record

_TABLE = Path(__file__).parent / "upstream.csv"


@dataclass(frozen=True, slots=True)
class Explained(Record):
    """The result of `torchport.explain` on a row's model without weights, on the `meta` device.

    Args:
        model: the row's name.
        ops_before, ops_remain, transfers, flops: as in `Coverage`.
        conditional: how many ops are taken if the weights' values fit.
        reasons: why ops stay, each reason once.
        error: why the model could not be explained.
    """

    schema: ClassVar[str] = "torchport.benchmarks.explained/1"

    model: str
    ops_before: int | None = None
    ops_remain: int | None = None
    transfers: int | None = None
    flops: int | None = None
    conditional: int = 0
    reasons: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Placed(Record):
    """The transfers of a row that was run, and why its ops stay on the host.

    Args:
        model: the row's name.
        inputs, outputs: as in `Coverage`; unknown for a row that is run in pieces.
        reasons: why ops stay, each reason once.
    """

    schema: ClassVar[str] = "torchport.benchmarks.placed/1"

    model: str
    inputs: int | None = None
    outputs: int | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trained(Record):
    """One step of training: forward, loss and backward.

    Args:
        model: the row's name.
        ops_before, ops_remain, transfers: as in `Coverage`, of the forward and backward graphs together.
        parameters: how many gradients were compared.
        pcc: the lowest PCC of a gradient with eager torch's.
        worst: the parameter whose gradient that is.
        below: how many gradients have a PCC below the threshold.
        excess: the largest ratio of the errors of our gradients to those of eager torch in float32, both
            relative to eager torch in float64.
        reasons: why ops stay, each reason once.
        error: why there is no result.
    """

    schema: ClassVar[str] = "torchport.benchmarks.trained/1"

    model: str
    ops_before: int | None = None
    ops_remain: int | None = None
    transfers: int | None = None
    parameters: int = 0
    pcc: float | None = None
    worst: str = ""
    below: int = 0
    excess: float | None = None
    reasons: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Judged(Record):
    """The verdict of Tenstorrent's own library, with a mock chip, on a row's programs.

    Args:
        model: the row's name.
        programs, accepted: how many there are, and how many of them it accepts whole.
        calls: how many of its functions they call, in total.
        refusals: why it refuses the others, each reason once.
        error: why there is no verdict.
    """

    schema: ClassVar[str] = "torchport.benchmarks.judged/1"

    model: str
    programs: int | None = None
    accepted: int = 0
    calls: int = 0
    refusals: tuple[str, ...] = ()
    error: str = ""


def upstream() -> list[dict[str, str]]:
    """Return torch_ttnn's rows."""
    with _TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def reasons(coverages: Iterable[Coverage]) -> tuple[str, ...]:
    """Return why ops stay on the host, with the ops grouped by reason."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for coverage in coverages:
        for op in coverage.stayed:
            found.setdefault((op.detail, op.remedy), Counter())[op.op] += 1
    return tuple(
        ", ".join(f"{count} × {op}" for op, count in ops.most_common())
        + f": {detail}"
        + (f" ({remedy})" if remedy else "")
        for (detail, remedy), ops in found.items()
    )
