"""Untrusted JSON and files: a value, or one error before much is read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.errors import RecordError
from torchport.records import open_regular, parse_json, parse_object, read_json


def nested(levels, start="[", end="]"):
    return start * levels + end * levels


def test_json_is_read():
    assert parse_json(b'{"a": [1, null, "\xc3\xa9"]}', "x") == {"a": [1, None, "é"]}
    assert parse_json(nested(200), "x") is not None
    assert parse_object("{}", "x") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nested(201), "more than 200 levels"),
        (nested(100_000), "more than 200 levels"),
        ("[" * 100_000, "more than 200 levels"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "more than 200 levels"),
        ("[1", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        ("nul", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("9" * 10_000, "is not valid JSON"),
    ],
)
def test_what_is_not_json_is_refused(text, message):
    with pytest.raises(RecordError, match=message) as caught:
        parse_json(text, "the file")
    assert caught.value.where == "the file"


def test_brackets_in_texts_do_not_count():
    text = '["' + "[" * 500 + '\\"{{{", {"a": "]"}]'
    assert parse_json(text, "x") == ["[" * 500 + '"{{{', {"a": "]"}]


def test_lone_surrogates_are_replaced():
    assert parse_json(b'{"\\ud800": ["a\\udc80b", "\\ud83d\\ude00"]}', "x") == {"\ufffd": ["a\ufffdb", "😀"]}


def test_an_object_is_one():
    with pytest.raises(RecordError, match="expected a JSON object, got list"):
        parse_object("[]", "x")


def test_files_are_looked_at_before_they_are_read(tmp_path):
    pipe, large = tmp_path / "pipe", tmp_path / "large.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(RecordError, match=r"cannot be read: it is a (FIFO|device), not a regular file"):
            read_json(path)
    with pytest.raises(RecordError, match="cannot be read: it is a directory"):
        read_json(tmp_path)
    with large.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file
    with pytest.raises(RecordError, match="cannot be read: its 1,099,511,627,776 bytes exceed the limit"):
        read_json(large)
    large.write_text(json.dumps([1]))
    with open_regular(large) as file:
        assert file.read() == b"[1]"


def test_records_are_checked_without_assertions_too():
    """`python -O` drops every `assert`."""
    code = (
        "import sys\n"
        "from torchport.errors import RecordError\n"
        "from torchport.records import Package, IslandMeta, TensorSpec\n"
        "if not sys.flags.optimize: raise SystemExit('assertions are on')\n"
        "good = {'shape': [1], 'dtype': 'float32'}\n"
        "TensorSpec.from_json(good)\n"
        "bad = [(TensorSpec, []), (TensorSpec, {**good, 'shape': 'x'}), (TensorSpec, {**good, 'dtype': 3}),\n"
        "       (IslandMeta, {}), (Package, {'schema': 'torchport.package/2'}), (Package, None)]\n"
        "for kind, data in bad:\n"
        "    try: kind.from_json(data)\n"
        "    except RecordError: pass\n"
        "    else: raise SystemExit(repr(data))\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
