"""The results tables of the documents show the records in docs/results, and no others."""

import importlib.util
import re

import pytest

from docs.markdown import DOCUMENTS, ROOT

_spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
results = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(results)

PLACES = [(table, document) for table, documents in results.DOCUMENTS.items() for document in documents]


@pytest.mark.parametrize(("table", "document"), PLACES, ids=lambda value: getattr(value, "name", value))
def test_a_document_shows_what_its_records_say(table, document):
    assert results.shown(document, table) == results.render(table), (
        f"{document.name} and docs/results/{table} disagree: python benchmarks/results.py"
    )


def test_every_results_table_is_made_of_records():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        tables = len(re.findall(r"^\| Model +\| Target +\| Status", text, re.M))
        assert tables == sum(document == place for _, place in PLACES), document.name
