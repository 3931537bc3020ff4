"""A run with `--resume` skips the tests that passed before, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import resume

TESTS = """
import os

import pytest

@pytest.mark.parametrize("number", range(3))
def test_number(number):
    assert number != int(os.environ.get("FAILS", -1))

@pytest.mark.xfail(strict=True)
def test_known():
    assert False
"""


def run(folder: Path, monkeypatch, fails: int = -1) -> tuple[int, str]:
    monkeypatch.setenv("FAILS", str(fails))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "resume",
        "--resume",
        "out/passed.jsonl",
        "test_it.py",
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return ran.returncode, ran.stdout


def test_only_what_passed_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text(TESTS)
    monkeypatch.setenv("PYTHONPATH", str(Path(resume.__file__).parent))

    code, said = run(tmp_path, monkeypatch, fails=1)
    assert code == 1
    assert "1 failed, 2 passed, 1 xfailed" in said

    passed = tmp_path / "out" / "passed.jsonl"
    passed.write_text(passed.read_text() + '\n{"test": "test_it.py::test_nu')  # interrupted while writing
    code, said = run(tmp_path, monkeypatch)
    assert code == 0
    assert "1 passed, 3 deselected" in said
    assert "3 tests passed before" in said

    code, said = run(tmp_path, monkeypatch)
    assert code == 0
    assert "4 deselected" in said
    assert "other sources" not in said

    passed.write_text(passed.read_text().replace('"sources": "', '"sources": "0'))
    code, said = run(tmp_path, monkeypatch)
    assert code == 0
    assert "4 of them with other sources" in said
