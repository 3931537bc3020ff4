"""The table of records in docs/formats.md, made from the records themselves.

python tests/docs/schema_table.py     # writes it into the document
"""

import inspect
from pathlib import Path

from torchport import records
from torchport.records import Record

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
BEGIN, END = "<!-- schemas: begin -->\n", "<!-- schemas: end -->\n"


def render() -> str:
    """Return the table: a row for each record that has a schema."""
    found = [
        kind
        for kind in vars(records).values()
        if inspect.isclass(kind) and issubclass(kind, Record) and kind.schema
    ]
    lines = ["| schema | class | what it is |", "|---|---|---|"]
    for kind in sorted(found, key=lambda kind: kind.schema):
        summary = (inspect.getdoc(kind) or "").splitlines()[0]
        lines.append(f"| `{kind.schema}` | `{kind.__name__}` | {summary} |")
    return "\n".join(lines) + "\n"


def shown() -> str:
    """Return the table as it stands in the document."""
    return DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def write() -> None:
    """Write the table into the document."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}{render()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write()
