"""Writes docs/results/ttnn.md: torch_ttnn's own figures and torchport's side by side, from records."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from torchport.records import BenchRecord, atomic_write

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "docs" / "results"
RECORDS = RESULTS / "ttnn.json"
PAGE = RESULTS / "ttnn.md"
_MARKS = {"ok": "✅", "inaccurate": "❌", "failed": "❌"}


def upstream() -> list[dict[str, str]]:
    """Return torch_ttnn's rows."""
    with (HERE / "upstream.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_records() -> dict[str, BenchRecord]:
    """Return the records that the page is made from, by row."""
    rows = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    return {row["model"]: BenchRecord.from_json(row) for row in rows}


def write_page(directory: Path) -> None:
    """Add the records of a run to those that are kept, and write the page anew."""
    kept = read_records()
    for path in sorted((directory / "bench").glob("*.json")):
        record = BenchRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
        kept[record.model] = record
    ordered = [kept[row["name"]].to_json() for row in upstream() if row["name"] in kept]
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in ordered) + "\n]\n"
    for path, content in ((RECORDS, text), (PAGE, render(kept))):
        with atomic_write(path) as made:
            made.write_text(content, encoding="utf-8")


def render(records: dict[str, BenchRecord]) -> str:
    """Return the page."""
    from models import ABSENT

    rows = upstream()
    lines = [_line(row, records.get(row["name"]), ABSENT.get(row["name"], "")) for row in rows]
    return "\n".join([*_head(rows, records), *lines, ""])


def totals(records: dict[str, BenchRecord]) -> str:
    """Return in a sentence what came of the evaluation rows."""
    rows = [row for row in upstream() if row["mode"] == "eval"]
    done = [records[row["name"]] for row in rows if row["name"] in records]
    whole = sum(record.status == "ok" and record.ops_remain == 0 for record in done)
    theirs = sum(row["status"] == "✅" for row in rows)
    return (
        f"Of the table's {len(rows)} rows in evaluation {len(done)} were run: {whole} with no op left and a "
        f"PCC of at least 0.99. Upstream, {theirs} of them have no op left."
    )


def _head(rows: list[dict[str, str]], records: dict[str, BenchRecord]) -> list[str]:
    return [
        "# torch_ttnn's own table, row by row",
        "",
        f"The {len(rows)} rows of torch_ttnn's results table, its figures beside those of torchport's `ttnn`",
        "target. Weights are random, sizes are the table's. Results come from the [simulator](../ttnn.md).",
        "`python benchmarks/ttnn_table/run.py` writes this page from the records in `ttnn.json`, and can be",
        "stopped and started again.",
        "",
        totals(records),
        "",
        "Counts of ops differ where the two capture models differently. Moves are tensors that cross to or",
        "from the device.",
        "",
        "| Model | Theirs | Ops | Left | Moves | Accuracy (%) | Ours | Ops | Left | Moves | PCC | Note |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|---|",
    ]


def _line(row: dict[str, str], record: BenchRecord | None, absent: str) -> str:
    theirs = [
        row["name"],
        row["status"],
        *(row[key] or "-" for key in ("ops_before", "ops_remain", "transfers", "accuracy")),
    ]
    if record is None:
        return _cells([*theirs, "", "", "", "", "", absent or "not run yet"])
    numbers = [_number(record.ops_before), _number(record.ops_remain), _number(record.transfers)]
    pcc = "-" if record.pcc is None else f"{record.pcc:.4f}"
    return _cells([*theirs, _MARKS[record.status], *numbers, pcc, " ".join(record.error.split())])


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _cells(values: list[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"
