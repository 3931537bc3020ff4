"""Writes docs/results/ttnn.md: torch_ttnn's own figures and torchport's side by side, from records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from models import ABSENT, NOTES
from rows import Explained, Judged, Placed, Trained, upstream

from torchport.records import MOST_EXCESS, PCC_THRESHOLD, BenchRecord, atomic_write
from torchport.records.record import Record
from torchport.targets.ttnn.target import TtnnTarget

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = RESULTS / "ttnn.md"
README = RESULTS.parents[1] / "README.md"
_BEGIN, _END = "<!-- ttnn: begin -->\n", "<!-- ttnn: end -->\n"  # around the totals in the README
# Where records are kept, and the folders of a run that they come from, the preferred one last.
_KEPT = {
    BenchRecord: ("ttnn.json", "bench"),
    Explained: ("ttnn_explained.json", "explained"),
    Placed: ("ttnn_placed.json", "placed"),
    Trained: ("ttnn_trained.json", "trained_explained", "trained"),
    Judged: ("ttnn_judged.json", "judged"),
}
_MOST_LEFT = 0.05  # of the ops in training
_LIBRARY = TtnnTarget().version()  # for which programs are written

RowRecord = TypeVar("RowRecord", bound=Record)


@dataclass(frozen=True, slots=True)
class Records:
    """All records behind the page, by row."""

    run: Mapping[str, BenchRecord]
    explained: Mapping[str, Explained]
    trained: Mapping[str, Trained]
    placed: Mapping[str, Placed]
    judged: Mapping[str, Judged]


def read(kind: type[RowRecord]) -> dict[str, RowRecord]:
    """Return the kept records of a kind, by row."""
    path = RESULTS / _KEPT[kind][0]
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {row["model"]: kind.from_json(row) for row in found}


def read_records() -> Records:
    """Return the records behind the page."""
    return Records(read(BenchRecord), read(Explained), read(Trained), read(Placed), read(Judged))


def write_page(directory: Path) -> None:
    """Add the records of a run to those that are kept, and write the page anew."""
    for kind, (kept, *folders) in _KEPT.items():
        rows = {name: record.to_json() for name, record in read(kind).items()}
        for path in [path for folder in folders for path in sorted((directory / folder).glob("*.json"))]:
            record = kind.from_json(json.loads(path.read_text(encoding="utf-8")))
            if isinstance(record, Trained) and record.ops_before is None and record.model in rows:
                continue  # what was explained says more
            if isinstance(record, Judged) and record.programs is None and record.model in rows:
                continue  # it was judged elsewhere
            rows[record.model] = record.to_json()
        ordered = [rows[row["name"]] for row in upstream() if row["name"] in rows]
        lines = ",\n".join(_short(json.dumps(row, ensure_ascii=False)) for row in ordered)
        _write(RESULTS / kept, f"[\n{lines}\n]\n")
    records = read_records()
    _write(PAGE, render(records))
    before, _, rest = README.read_text(encoding="utf-8").partition(_BEGIN)
    _write(README, before + _BEGIN + shown_totals(records) + _END + rest.partition(_END)[2])


def shown_totals(records: Records) -> str:
    """Return the totals as the README shows them."""
    return "\n".join(["", *totals(records), ""]) + "\n"


def _short(text: str) -> str:
    """Remove package paths, and torch's own wording of unknown conditions, from a message."""
    return re.sub(r" \(Could not guard on .*?\)(?=: )", "", re.sub(r"[^ \"]*site-packages/", "", text))


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as made:
        made.write_text(text, encoding="utf-8")


def render(records: Records) -> str:
    """Return the page."""
    lines = [_cells([*_theirs(row), *_ours_judged(row["name"], records)]) for row in upstream()]
    return "\n".join([*_head(records), *lines, ""])


def totals(records: Records) -> list[str]:
    """Return a summary of the rows, in sentences."""
    rows = upstream()
    evaluated = [row for row in rows if row["mode"] == "eval"]
    run = [record for record in records.run.values() if record.pcc is not None]
    whole = [record for record in run if record.status == "ok" and record.ops_remain == 0]
    coarse = sum(record.excess is not None for record in whole)
    explained = [record for record in records.explained.values() if record.ops_remain is not None]
    complete = sum(record.ops_remain == 0 for record in explained)
    trained = [record for record in records.trained.values() if record.pcc is not None]
    good = sum(_trains(record) for record in trained)
    counted = [record for record in records.trained.values() if record.ops_before is not None]
    few = sum(_few_left(record) for record in counted)
    theirs = sum(row["status"] == "✅" for row in evaluated)
    judged = [record for record in records.judged.values() if record.programs is not None]
    programs = sum(record.programs or 0 for record in judged)
    calls = sum(record.calls for record in judged)
    taken = sum(record.accepted == record.programs for record in judged)
    near = f" or ({coarse} rows) as close as bfloat16 can represent such results" if coarse else ""
    return [
        f"- evaluation, {len(evaluated)} rows: {len(run)} were run, {len(whole)} of them with no op left and",
        f"  correct results, with a PCC of at least {PCC_THRESHOLD:g}{near};",
        f"  {len(explained)} were explained without weights, {complete} of them with no op left.",
        f"  Upstream, {theirs} rows have no op left.",
        f"- training, {len(rows) - len(evaluated)} rows: {len(trained)} were run, {good} of them with at",
        f"  most {_MOST_LEFT:.0%} of the ops left and every gradient correct; {len(counted)} were run or",
        f"  explained, {few} of them with at most {_MOST_LEFT:.0%} left.",
        f"- Tenstorrent's own library, with a mock chip: the programs of {len(judged)} rows were judged,",
        f"  {programs:,} programs of {calls:,} calls; {taken} rows had all their programs accepted.",
    ]


def _trains(record: Trained) -> bool:
    if record.pcc is None:
        return False
    right = record.pcc >= PCC_THRESHOLD or (record.excess is not None and record.excess <= MOST_EXCESS)
    return right and _few_left(record)


def _few_left(record: Trained) -> bool:
    if record.ops_before is None or record.ops_remain is None:
        return False
    return record.ops_remain <= _MOST_LEFT * record.ops_before


def _head(records: Records) -> list[str]:
    return [
        "# torch_ttnn's own table, row by row",
        "",
        f"The {len(upstream())} rows of torch_ttnn's results table, with its figures next to those of",
        "torchport's `ttnn` target. Weights are random, sizes are the table's. Results come from the",
        "[simulator](../ttnn.md). `make ttnn-table` writes this page from the records beside it, and resumes",
        "if interrupted.",
        "",
        *totals(records),
        "",
        "✅ is correct, with no op left (in training: few); 🚧 is correct, with ops left; ❌ is wrong or",
        "failed. ○ was explained but not run: ops and moves are from `torchport.explain` without weights.",
        "Op counts differ where the two tools capture models differently. Moves are tensors transferred to",
        "or from the device, in training including weights; where no op is left, only a call's inputs",
        "and outputs (counted in `ttnn_placed.json`). Weights initialized to zeros get random values, since",
        "all-zero results always match. Rows of `generate` count the ops of the compiled step, and",
        "their PCC is that of the logits, for the generated tokens. Rows whose shapes depend on values (how",
        "many boxes remain) are run by `torch.compile`, in float32: the ops of its graphs are counted",
        "together, and each kind of op that eager torch runs between them counts as one that stays; to avoid",
        "that, the post-processing would have to be written with fixed shapes. Boxes are compared in",
        "positional order, since scores that differ in the last bits change their order.",
        "Results that are only a few rounding steps apart, as with random weights, have a low PCC",
        "however they are computed: so do the correct ones, once stored in bfloat16. Such rows are run in",
        "float32, as the note says. If a PCC is still below the threshold, the note gives the error relative",
        f"to that of the correct results stored in bfloat16; up to {MOST_EXCESS:g} times that is accepted.",
        "",
        "Rows in training count the ops of the forward and backward graphs together,",
        "[decomposed](../ttnn.md#training) as",
        "the target gets them; the loss is the mean square of the results, dropout is off, floats are",
        "float32 on the device, and the PCC is that of the least accurate gradient, named in the note.",
        "The gradient of a weight whose effect the next normalisation cancels is almost zero, and determined",
        "by rounding in eager torch too: if a PCC is below the threshold, ours and eager torch's are both",
        "compared with float64's, and the note gives the ratio of their errors; up to",
        f"{MOST_EXCESS:g} is accepted.",
        "",
        "*Real library* is the number of a row's programs that Tenstorrent's own library accepts whole, of",
        f"the total: ttnn {_LIBRARY}, with a mock n150. It makes every call, checks arguments, plans",
        "kernels and memory, and infers shapes, dtypes and layouts, which are compared with what the program",
        "expects. Nothing is computed, so weights and inputs are zeros. A row has a program for each piece",
        "that the target compiles: one if no op is left; one each for the encoder, for a piece of the prompt",
        "and for a step if it generates; in training those of the forward and the backward graph.",
        "",
        "| Model | Theirs | Ops | Left | Moves | Accuracy (%) | Ours | Ops | Left | Moves | PCC | "
        "Real library | Note |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|---|",
    ]


def _theirs(row: dict[str, str]) -> list[str]:
    numbers = [row[key] or "-" for key in ("ops_before", "ops_remain", "transfers", "accuracy")]
    return [row["name"], row["status"], *numbers]


def _ours_judged(name: str, records: Records) -> list[str]:
    """Return our figures, the real library's verdict on the programs, and the note."""
    *figures, note = _ours(name, records)
    judged = records.judged.get(name)
    if name in ABSENT:
        return [*figures, "", note]
    if judged is None or judged.programs is None:
        return [*figures, "-", _joined([note, f"not judged: {judged.error}" if judged is not None else ""])]
    refusals = [f"the real library refuses: {each}" for each in judged.refusals]
    return [*figures, f"{judged.accepted}/{judged.programs}", _joined([note, *refusals])]


def _ours(name: str, records: Records) -> list[str]:
    run, explained, trained = records.run.get(name), records.explained.get(name), records.trained.get(name)
    notes = [NOTES[name]] if name in NOTES else []
    if run is not None and (run.ops_before is not None or explained is None):
        mark = ("🚧" if run.ops_remain else "✅") if run.status == "ok" else "❌"
        notes += records.placed[name].reasons if name in records.placed else ()
        if run.excess is not None:
            notes.append(f"{run.excess:.2g} times as far off as the right result stored in bfloat16")
        return _figures(mark, run, run.pcc, [*notes, run.error])
    if trained is not None:
        notes = [_gradients(trained), *trained.reasons, trained.error]
        return _figures(_mark_of_training(trained), trained, trained.pcc, notes)
    if explained is not None:
        why_not_run = [f"not run: {run.error}"] if run is not None else []
        mark = "○" if explained.ops_remain is not None else "❌"
        return _figures(mark, explained, None, [*notes, *explained.reasons, explained.error, *why_not_run])
    return ["", "", "", "", "", ABSENT.get(name, "not run yet")]


def _mark_of_training(record: Trained) -> str:
    if record.pcc is None and not record.error:
        return "○"
    return "✅" if _trains(record) else "❌"


def _gradients(record: Trained) -> str:
    if record.excess is None:
        return record.worst
    which = f"{record.worst}; {record.below} of {record.parameters} gradients are below the threshold"
    return f"{which}, {record.excess:.2g} times as far off as eager torch's"


def _figures(
    mark: str, record: BenchRecord | Explained | Trained, pcc: float | None, notes: list[str]
) -> list[str]:
    counts = (record.ops_before, record.ops_remain, record.transfers)
    return [mark, *map(_number, counts), "-" if pcc is None else f"{pcc:.4f}", _joined(notes)]


def _joined(notes: list[str]) -> str:
    return "; ".join(" ".join(each.split()) for each in notes if each)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _cells(values: list[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|").replace("<", "&lt;") for value in values) + " |"
