"""The analysis of a model: its unique modules, its unique ops and its cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchport.records.cost import Cost
from torchport.records.module_table import ModuleTable
from torchport.records.module_tree import render_tree_html
from torchport.records.op_table import OpTable
from torchport.records.record import Record
from torchport.records.storage import write_texts

MODULES_FILE = "unique_modules.json"
OPS_FILE = "pytorch_ops.json"
COST_FILE = "cost.json"


@dataclass(frozen=True, slots=True)
class Analysis(Record):
    """The analysis of one model on one set of inputs.

    Args:
        model: the model's name.
        modules: its unique modules.
        ops: its unique ops.
        cost: its cost.
    """

    schema: ClassVar[str] = "torchport.analysis/1"

    model: str
    modules: ModuleTable
    ops: OpTable
    cost: Cost

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write `unique_modules.json`, `pytorch_ops.json` and `cost.json`; if one cannot be written, none is.

        Returns:
            The paths of the files.

        Raises:
            RecordError: a file cannot be written.
        """
        texts = self.files(directory)
        write_texts(texts)
        return tuple(texts)

    def files(self, directory: str | Path) -> dict[Path, str]:
        """Return the path and text of each file that `save` writes."""
        parts = {MODULES_FILE: self.modules, OPS_FILE: self.ops, COST_FILE: self.cost}
        return {Path(directory) / name: json_text(part) for name, part in parts.items()}

    def _repr_html_(self) -> str:
        """Show the module tree with each module's cost, in a notebook."""
        return render_tree_html(self.cost)


def json_text(record: Record) -> str:
    """Return a record as the text of a JSON file."""
    return json.dumps(record.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
