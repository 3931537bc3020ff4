"""The results tables of the documents, and the records behind them.

    python benchmarks/results.py              # fills the tables from the records in docs/results
    python benchmarks/results.py --rerun      # measures again first, on every target that works here

A table is between `<!-- NAME: begin -->` and `<!-- NAME: end -->` in its document, and shows the records
in `docs/results/NAME/bench`.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import tempfile
from pathlib import Path

from torchport import zoo
from torchport.bringup import describe_targets, run_benches
from torchport.records import write_text
from torchport.report import read_report, render_markdown

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "results"
# The documents that show a table of that name.
DOCUMENTS = {
    "demo": (ROOT / "README.md", ROOT / "docs" / "results.md"),
    "models": (ROOT / "docs" / "results.md",),
}


def render(table: str) -> str:
    """Return the table rendered from its records."""
    return render_markdown(read_report(RECORDS / table)) + "\n"


def shown(document: Path, table: str) -> str:
    """Return the table as it is in a document."""
    return document.read_text(encoding="utf-8").partition(_begin(table))[2].partition(_end(table))[0]


def fill() -> None:
    """Write every table into its documents."""
    for table, documents in DOCUMENTS.items():
        for document in documents:
            before, begin, rest = document.read_text(encoding="utf-8").partition(_begin(table))
            write_text(
                before + begin + render(table) + _end(table) + rest.partition(_end(table))[2], document
            )


def rerun(table: str) -> None:
    """Measure the models of a table again, on every target that works here; those of `models` on ttnn."""
    report = read_report(RECORDS / table)
    models = list(dict.fromkeys(row.model for row in report.benches))
    targets = ["ttnn"] if table == "models" else [found.name for found in describe_targets() if found.ok]
    with tempfile.TemporaryDirectory() as folder:
        load = functools.partial(zoo.load, weights=False)
        run_benches(models, targets=targets, directory=Path(folder), load=load)
        shutil.rmtree(RECORDS / table / "bench")
        shutil.copytree(Path(folder) / "bench", RECORDS / table / "bench")


def _begin(table: str) -> str:
    return f"<!-- {table}: begin -->\n"


def _end(table: str) -> str:
    return f"<!-- {table}: end -->\n"


def main() -> None:
    """Fill the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rerun", action="store_true", help="measure again first")
    parser.add_argument("--table", choices=list(DOCUMENTS), action="append", help="which; all by default")
    given = parser.parse_args()
    for table in given.table or DOCUMENTS:
        if given.rerun:
            rerun(table)
    fill()


if __name__ == "__main__":
    main()
