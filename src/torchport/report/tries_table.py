"""The outcome of each engine that `auto` tried, as the cells of a table."""

from __future__ import annotations

from torchport.records import EngineTry

TRIES_HEADER = (
    "Engine",
    "Status",
    "Time (ms)",
    "Of Eager",
    "PCC",
    "Build (s)",
    "Memory (MB)",
    "Transfers",
    "Reason",
)
TRIES_NUMERIC = (False, False, True, True, True, True, True, True, False)


def tries_cells(row: EngineTry) -> list[str]:
    """Return a row's cells, in the order of `TRIES_HEADER`.

    Example:
        >>> tries_cells(EngineTry("fast", "ok", 0.001, 0.004, fastest=0.001, eager_fastest=0.005))[:4]
        ['fast', 'ok', '1.00', '0.25x']
    """
    return [
        row.engine,
        row.status,
        _number(row.seconds, 1e3, 2),
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        _number(row.pcc, 1, 6),
        _number(row.build_seconds, 1, 1),
        _number(row.memory_bytes, 1e-6, 0),
        "-" if row.transfers is None else str(row.transfers),
        row.reason,
    ]


def tries_values(row: EngineTry) -> list[str | int | float | None]:
    """Return the values that rows are sorted by, in the order of `TRIES_HEADER`."""
    return [
        row.engine, row.status, row.seconds, row.ratio, row.pcc,
        row.build_seconds, row.memory_bytes, row.transfers, row.reason,
    ]  # fmt: skip


def _number(value: float | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"
