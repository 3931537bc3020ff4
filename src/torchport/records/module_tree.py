"""The modules of a model and their costs, as the rows of a tree and as HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass

from torchport.records.cost import Cost, ModuleCost
from torchport.records.module_table import ROOT


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A module in the tree.

    Args:
        depth: its level in the tree; 0 for the model itself.
        name: its name within its parent.
        cost: its class and its cost.
    """

    depth: int
    name: str
    cost: ModuleCost


def tree_rows(cost: Cost, depth: int | None = None) -> list[TreeRow]:
    """Return the modules of a model in the order of the tree.

    Args:
        cost: the model's cost.
        depth: how deep to go; all the way if None.
    """
    rows = []
    for module in cost.modules:
        level = 0 if module.path == ROOT else module.path.count(".") + 1
        if depth is None or level <= depth:
            name = module.class_name if module.path == ROOT else module.path.rpartition(".")[2]
            rows.append(TreeRow(level, name, module))
    return rows


def render_tree_html(cost: Cost) -> str:
    """Return the tree as an HTML table."""
    head = ("Module", "Class", "Parameters", "Output", "FLOPs", "Peak memory")
    body = "".join(
        f'<tr><td style="text-align:left;padding-left:{1 + row.depth}em">{html.escape(row.name)}</td>'
        f'<td style="text-align:left">{html.escape(row.cost.class_name)}</td>'
        f"<td>{row.cost.parameters:,}</td><td>{html.escape(', '.join(row.cost.output_shapes))}</td>"
        f"<td>{row.cost.flops:,}</td><td>{row.cost.peak_bytes:,} B</td></tr>"
        for row in tree_rows(cost)
    )
    columns = "".join(f"<th>{name}</th>" for name in head)
    note = f"<p>{html.escape(cost.note)}</p>" if cost.note else ""
    return f"{note}<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
