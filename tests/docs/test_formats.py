"""docs/formats.md lists every record that there is, with its version."""

from docs import schema_table


def test_every_schema_is_listed():
    assert schema_table.shown() == schema_table.render(), "python tests/docs/schema_table.py"
