"""Every op that a file may call is called with arguments that do not fit: it refuses, and writes nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TRIALS = 25


@pytest.mark.conformance
@pytest.mark.timeout(3600)
def test_permitted_ops_check_their_arguments(tmp_path):
    progress, first, slow = tmp_path / "progress", 0, []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    while first >= 0:
        command = [sys.executable, "-m", "conformance.hostile_calls", str(first), str(TRIALS), str(progress)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        at = progress.read_text()
        first = int(at.split()[0])
        if done.returncode == -signal.SIGALRM:
            slow.append(at)
            first += 1
            continue
        assert done.returncode == 0, f"{done.returncode} at {at}: {done.stderr[-1000:]}"
    assert len(slow) < 40, slow
