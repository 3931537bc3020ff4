"""OpenVINO's telemetry stays off, in this process and in compiler processes."""

import os
import subprocess
import sys

import pytest

# Python imports this first, in the process and in all its child processes.
WATCH = """
import os, sys

def watch(event, args):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect"):
        with open(os.environ["PHONED"], "a") as file:
            file.write(f"{event} {args!r}\\n")

sys.addaudithook(watch)
"""
COMPILE = """
import torch, torchport
model, x = torch.nn.Linear(4, 4).eval(), torch.ones(2, 4)
torch.testing.assert_close(torchport.compile(model, (x,), target="openvino")(x), model(x))
"""
TRACE = """
import torch, torchport
model, x = torch.nn.Linear(4, 4).eval(), torch.ones(2, 4)
torchport.trace(model, x, target="openvino", compiler_timeout=200)
"""
OTHERS = """
import sys
from torchport.targets.openvino.library import openvino
openvino()
import openvino_telemetry
assert openvino_telemetry.Telemetry
"""


@pytest.mark.parametrize("code", [COMPILE, pytest.param(TRACE, marks=pytest.mark.conformance)])
def test_nobody_is_called_and_nothing_is_written_to_the_home_directory(code, tmp_path):
    home, phoned = tmp_path / "home", tmp_path / "phoned"
    home.mkdir()
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    # OpenVINO disables telemetry itself where CI runs.
    variables = {
        key: value for key, value in os.environ.items() if key not in ("CI", "TF_BUILD", "JENKINS_URL")
    }
    variables |= {
        "CUDA_VISIBLE_DEVICES": "",  # its driver keeps a cache in the home directory
        "HOME": str(home), "PHONED": str(phoned), "TORCHPORT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not phoned.exists(), phoned.read_text()
    assert not list(home.rglob("*"))


def test_the_telemetry_package_is_there_for_others():
    pytest.importorskip("openvino_telemetry")
    done = subprocess.run([sys.executable, "-c", OTHERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
