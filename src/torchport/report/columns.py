"""The columns of the results table: the single list that Markdown, CSV and HTML use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchport.records import BenchRecord, Fallbacks

Value = str | int | float | bool | None

ABSENT = "-"
STATUS_MARKS = {"ok": "✅", "inaccurate": "❌", "failed": "❌"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the results table.

    Args:
        title: its heading; empty for a column that only CSV has.
        fields: the record's fields that it shows: each is a column of the CSV file; rows sort by the first.
        text: formats a row's cell.
        explanation: what the column means, for new readers.
        numeric: whether it is right-aligned.
        only_if: if given, the column is shown only if this holds for some row.
    """

    title: str
    fields: tuple[str, ...]
    text: Callable[[BenchRecord], str] = lambda row: ""
    explanation: str = ""
    numeric: bool = True
    only_if: Callable[[BenchRecord], object] | None = None

    def value(self, row: BenchRecord) -> Value:
        """Return the value that a row is sorted by."""
        return field_value(row, self.fields[0])


def field_value(row: BenchRecord, field: str) -> Value:
    """Return a field of a row as it appears in CSV: plain, with times in seconds."""
    value = getattr(row, field)
    return value.fallbacks if isinstance(value, Fallbacks) else value


def _target(row: BenchRecord) -> str:
    if row.tries is not None:
        return f"{row.target} ({row.tries.chosen})"
    return f"{row.target} (simulated)" if row.simulated else row.target


def _number(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _counts(total: int | None, unique: int | None) -> str:
    return ABSENT if total is None or unique is None else f"{total} ({unique})"


def _milliseconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else f"{1000 * seconds:.2f}"


_COLUMNS: tuple[Column, ...] = (
    Column("Model", ("model",), lambda row: row.model, "the model's name", numeric=False),
    Column(
        "Target",
        ("target",),
        lambda row: _target(row),
        "the target it was compiled for; whether it is simulated; what auto chose",
        numeric=False,
    ),
    Column(
        "Status",
        ("status",),
        lambda row: STATUS_MARKS[row.status],
        "✅ only if it ran and its accuracy meets the threshold",
        numeric=False,
    ),
    Column("Batch", ("batch",), lambda row: _number(row.batch), "the first input's first dimension"),
    Column(
        "Torch Ops Before (Unique)",
        ("ops_before", "unique_before"),
        lambda row: _counts(row.ops_before, row.unique_before),
        "how many torch ops the model has, and how many distinct ones",
    ),
    Column(
        "Torch Ops Remain (Unique)",
        ("ops_remain", "unique_remain"),
        lambda row: _counts(row.ops_remain, row.unique_remain),
        "how many of them stay on the host",
    ),
    Column(
        "To/From Device Ops",
        ("transfers",),
        lambda row: _number(row.transfers),
        "how many tensors move to or from the target in one call",
    ),
    Column(
        "Original Run Time (ms)",
        ("original_time",),
        lambda row: _milliseconds(row.original_time),
        "one call of the original model, median",
    ),
    Column(
        "Compiled Run Time (ms)",
        ("compiled_time",),
        lambda row: (
            _milliseconds(row.compiled_time) + (" (estimate)" if row.simulated and row.compiled_time else "")
        ),
        "one call of the compiled model, median of runs interleaved with the original's; for a simulated "
        "target, an estimate for the device",
    ),
    Column(
        "Speed-up",
        ("speedup",),
        lambda row: ABSENT if row.speedup is None else f"{row.speedup:.2f}x",
        "how many times faster the compiled model is",
    ),
    Column(
        "First Run (ms)",
        ("first_run_time",),
        lambda row: _milliseconds(row.first_run_time),
        "compiling and the first call together, without loading the model",
    ),
    Column(
        "Accuracy (PCC)",
        ("pcc", "pcc_threshold", "max_absolute", "excess"),
        lambda row: ABSENT if row.pcc is None else f"{row.pcc:.6f}",
        "Pearson's correlation coefficient of the two results; 1 is best",
    ),
    Column("", ("runs", "simulated")),
    Column(
        "Calls Run by Torch",
        ("fallbacks",),
        lambda row: (
            ABSENT if row.fallbacks is None else f"{row.fallbacks.fallbacks} of {row.fallbacks.calls}"
        ),
        "how many calls of the compiled model fell back to eager torch: out of range, or the device raised",
        only_if=lambda row: row.fallbacks is not None and row.fallbacks.fallbacks,
    ),
    Column(
        "First Token (ms)",
        ("first_token_time",),
        lambda row: _milliseconds(row.first_token_time),
        "from the call to the first new token, median",
        only_if=lambda row: row.first_token_time is not None,
    ),
    Column(
        "Tokens a Second",
        ("tokens_per_second",),
        lambda row: ABSENT if row.tokens_per_second is None else f"{row.tokens_per_second:.1f}",
        "how fast the tokens after the first are generated, median",
        only_if=lambda row: row.tokens_per_second is not None,
    ),
    Column(
        "Builds",
        ("builds",),
        lambda row: _number(row.builds),
        "how many programs were built to generate",
        only_if=lambda row: row.builds is not None,
    ),
    Column(
        "Memory (MiB)",
        ("memory",),
        lambda row: ABSENT if row.memory is None else f"{row.memory / 2**20:.0f}",
        "how much more memory the process held after generating than before compiling",
        only_if=lambda row: row.memory is not None,
    ),
    Column(
        "Quantized",
        ("quantization", "layers_quantized", "layers"),
        lambda row: f"{row.quantization}, {row.layers_quantized} of {row.layers}" if row.layers else ABSENT,
        "the method, and how many of the quantizable layers were quantized",
        numeric=False,
        only_if=lambda row: row.quantization,
    ),
    Column(
        "Weights",
        ("size_ratio",),
        lambda row: ABSENT if row.size_ratio is None else f"{100 * row.size_ratio:.0f} %",
        "the size of the quantized weights relative to the float weights",
        only_if=lambda row: row.size_ratio is not None,
    ),
    Column(
        "Over Float",
        ("float_speedup",),
        lambda row: ABSENT if row.float_speedup is None else f"{row.float_speedup:.2f}x",
        "how many times faster it is than the float model compiled for the same target",
        only_if=lambda row: row.float_speedup is not None,
    ),
    Column("", ("error",)),
)

CSV_FIELDS: tuple[str, ...] = tuple(field for column in _COLUMNS for field in column.fields)
"""The fields of a record in the CSV file, in order."""


def columns_for(rows: Sequence[BenchRecord]) -> tuple[Column, ...]:
    """Return the columns to show: optional ones only if they apply to some row."""
    return tuple(
        column
        for column in _COLUMNS
        if column.title and (column.only_if is None or any(map(column.only_if, rows)))
    )


def complaint(row: BenchRecord) -> str:
    """Return why a row is not ok, in one line; empty if it is."""
    if row.status == "ok":
        return ""
    if row.status == "inaccurate" and not row.error and row.pcc is not None:
        return f"the PCC is {row.pcc:.6f}, which is below {row.pcc_threshold:g}"
    return " ".join(row.error.split()) or f"it {row.status}"
