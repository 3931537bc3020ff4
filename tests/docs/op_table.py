"""The table of ops in docs/openvino.md, made from the rules themselves.

python tests/docs/op_table.py     # writes it into the document
"""

import ast
import functools
from itertools import groupby
from pathlib import Path

from torchport.targets.openvino import ops
from torchport.targets.openvino.ops import RULES

DOCUMENT = Path(__file__).parents[2] / "docs" / "openvino.md"
BEGIN, END = "<!-- ops: begin -->\n", "<!-- ops: end -->\n"
_KINDS = {"f": "floats", "i": "int32, int64", "b": "bool", "q": "int8"}


def render() -> str:
    """Return the table: a row for each family and kind of tensors."""
    lines = ["| family | tensors | ops |", "|---|---|---|"]
    rows = sorted((family_of(name), rule.kinds, name) for name, rule in RULES.items())
    for (family, kinds), group in groupby(rows, key=lambda row: row[:2]):
        names = [f"`{name.removeprefix('aten.')}`{'*' if RULES[name].check else ''}" for *_, name in group]
        lines.append(f"| {family} | {', '.join(_KINDS[kind] for kind in kinds)} | {' '.join(names)} |")
    return "\n".join(lines) + "\n"


def family_of(name: str) -> str:
    """Return the file in which an op has its rule."""
    found = [family for family, words in _words().items() if name.removeprefix("aten.") in words]
    assert len(found) == 1, f"{name} stands in {found}"
    return found[0]


@functools.cache
def _words() -> dict[str, set[str]]:
    """Return the words in the texts of each family's file."""
    words = {}
    for path in sorted(Path(ops.__file__).parent.glob("*.py")):
        constants = [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        words[path.stem] = {word for constant in constants for word in constant.split()}
    return words


def shown() -> str:
    """Return the table as it stands in the document."""
    return DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def write() -> None:
    """Write the table into the document."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}{render()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write()
