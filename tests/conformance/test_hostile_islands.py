"""A thousand mutated islands of each kind: none crashes, hangs, or runs code from a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COUNT, BATCH = 1000, 250


@pytest.mark.conformance
@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
@pytest.mark.parametrize("kind", ["ttnn", "openvino", "cache"])
def test_a_changed_island_is_refused_or_runs(kind, first, tmp_path):
    child = TESTS / "conformance" / "hostile_child.py"
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(child), kind, str(first), str(first + BATCH), str(tmp_path)],
        env=variables, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    seed = (tmp_path / "seed").read_text() if (tmp_path / "seed").exists() else "none"
    assert done.returncode == 0, f"seed {seed} ends it with {done.returncode}: {done.stderr[-1000:]}"
    *findings, last = done.stdout.splitlines()
    assert not findings, "\n".join(findings)
    assert last.startswith("done")
