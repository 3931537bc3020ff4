"""A raw file is Parquet with the columns of the format, complete, and deterministic."""

import duckdb
import pytest

from torchport.errors import RecordError
from torchport.records import RAW_COLUMNS, RAW_FORMAT
from torchport.survey.stat.raw_file import write_raw_file

ROW = {
    "model": "it's",
    "direction": "fw",
    "graph": 0,
    "node": 0,
    "name": "add",
    "op": "aten.add.Tensor",
    "arguments": [{"name": "arg0", "parameter": "self", "value": "not_jsonable"}],
    "inputs": [{"node": None, "name": "x", "dtype": "float32", "shape": "2", "bytes": 8}],
    "outputs": [],
    "input_bytes": 8,
    "output_bytes": None,
    "flops": 2**40,
    "module_path": "",
    "source": 'a "quoted"\nline',
}


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "raw" / "it's.parquet"
    write_raw_file([ROW, ROW | {"node": 1}], path)
    found = duckdb.read_parquet(str(path))
    assert found.columns == list(RAW_COLUMNS)
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == [
        ROW,
        ROW | {"node": 1},
    ]
    kept = duckdb.execute("SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)", [str(path)])
    assert kept.fetchall() == [("format", RAW_FORMAT)]


def test_no_rows_are_a_file_too(tmp_path):
    write_raw_file([], tmp_path / "a.parquet")
    assert duckdb.read_parquet(str(tmp_path / "a.parquet")).fetchall() == []


def test_the_same_rows_give_the_same_bytes(tmp_path):
    rows = [ROW | {"node": node, "name": f"add_{node}"} for node in range(5000)]
    for name in ("a", "b"):
        write_raw_file(rows, tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        write_raw_file([ROW], tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
