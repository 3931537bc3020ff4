"""Without POSIX or Linux features, torchport imports, compiles and runs, or refuses in one line."""

import subprocess
import sys

import pytest

HIDDEN = """
import os, signal, sys
import asyncio  # reads os.sysconf where it finds POSIX
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for owner, names in (
    (os, "fork forkpty memfd_create setsid killpg wait4 geteuid getuid sysconf sched_getaffinity"),
    (signal, "SIGKILL SIGHUP"),
):
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
"""
COMPILES = """
import torch, torchport
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.rand(2, 8)
compiled = torchport.compile(model, (x,), target=TARGET)
assert compiled.coverage.complete
torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.02)
torchport.save(compiled, "model.pt2")
torch.testing.assert_close(torchport.load("model.pt2")(x), compiled(x))
analysis = torchport.analyze(model, (x,))
assert analysis.cost.flops == 2 * 2 * 8 * 8
print("done")
"""
REFUSES = """
import torchport
try:
    torchport.run_survey(["torchvision:resnet18"], output="out")
except torchport.TorchportError as error:
    print(error)
"""
ENDS = """
import subprocess, time
from torchport.targets.child_process import end_child
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
child.kill = child.terminate  # on Windows, both names are the same function
end_child(child)
print("ended", child.returncode != 0)
"""


def run_without_posix(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + code], capture_output=True, text=True, cwd=folder, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("target", ["host", "openvino", "ttnn"])
@pytest.mark.usefixtures("forked_python")
def test_models_compile_without_posix(target, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "cache"))
    assert run_without_posix(f"TARGET = {target!r}\n" + COMPILES, tmp_path).endswith("done")


@pytest.mark.usefixtures("forked_python")
def test_a_survey_says_in_one_line_that_it_cannot_run(tmp_path):
    said = run_without_posix(REFUSES, tmp_path)
    assert "surveys need POSIX" in said
    assert "WSL" in said
    assert len(said.splitlines()) == 1


def test_a_compiler_process_is_ended_without_process_groups(tmp_path):
    assert run_without_posix(ENDS, tmp_path) == "ended True"
