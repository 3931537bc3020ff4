"""A trace whose process is killed leaves nothing in the temporary directory."""

import os
import subprocess
import sys
import time

import psutil

TRACE = "import torch, torchport\ntorchport.trace(lambda x: x.tanh() + 1, torch.ones(2), target='hangs')\n"


def wait_for(condition, seconds=100):
    patience = time.monotonic() + seconds
    while not condition() and time.monotonic() < patience:
        time.sleep(0.05)
    return condition()


def test_a_killed_trace_leaves_no_folder_and_no_compiler(faulty_targets, tmp_path):
    folders = tmp_path / "temporary"
    folders.mkdir()
    process = subprocess.Popen([sys.executable, "-c", TRACE], env=os.environ | {"TMPDIR": str(folders)})
    assert wait_for(
        lambda: "thinking" in "".join(path.read_text() for path in folders.glob("*/compiler.log"))
    )
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(family, timeout=30)
    assert left == []
    assert wait_for(lambda: not list(folders.iterdir()), 10)
