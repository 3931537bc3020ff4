"""docs/openvino.md shows the ops, options and reasons that there are."""

import re

import pytest

from docs import op_table
from docs.markdown import sections
from torchport import targets
from torchport.records import REASONS


@pytest.fixture
def document(root) -> dict[str, str]:
    return sections(root / "docs" / "openvino.md")


def first_cells(text: str) -> list[str]:
    """Return the names in the first cells of a section's table."""
    return [
        name for cell in re.findall(r"^\| (`[^|]+) \|", text, re.M) for name in re.findall(r"`(\w+)`", cell)
    ]


def test_ops_are_those_that_have_rules():
    assert op_table.shown() == op_table.render(), "run python tests/docs/op_table.py"


def test_options_are_those_of_the_target_with_their_defaults(document):
    defaults = vars(targets.find("openvino").make_options({}))
    assert set(first_cells(document["Options"])) == set(defaults)
    for name, default in defaults.items():
        named = {True: "on", False: "off", (): "none"}
        shown = named.get(default) if isinstance(default, (bool, tuple)) else None
        text = shown or ("none" if default == {} else str(default))
        assert re.search(rf"^\| `{name}` \| `?{text}`? \|", document["Options"], re.M), name


def test_every_reason_is_explained(document):
    assert set(first_cells(document["Why an op stays"])) == set(REASONS) - {"supported"}


def test_ops_that_are_said_to_have_no_rule_have_none(document):
    [row] = [line for line in document["Why an op stays"].splitlines() if line.startswith("| `no_lowering`")]
    _, *names = re.findall(r"`(\w+)`", row)
    assert names
    taken = {name.split(".")[1] for name in op_table.RULES}
    assert not taken & set(names)
