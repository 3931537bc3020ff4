"""Opening files without torchport installed: torch itself names the op that it does not know."""

import json
import os
import subprocess
import sys
import sysconfig

import torch

import torchport

LOADS = """
import importlib.util, json, sys
sys.path.append(sys.argv[1])  # -S: finds torch there, but no editable installs
assert importlib.util.find_spec("torchport") is None
import torch

said = {}
for name, load in {"net.pt": torch.jit.load, "net.pt2": torch.export.load}.items():
    try:
        said[name] = f"loaded {load(name)}"
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def test_torch_names_the_op_that_it_does_not_know(tmp_path):
    model, x = torch.nn.Linear(4, 4).eval(), torch.rand(2, 4)
    torchport.save(torchport.compile(model, (x,), target="host"), tmp_path / "net.pt2")
    torchport.trace(model, x, target="host", settings=torchport.TraceSettings(child_process=False)).save(
        tmp_path / "net.pt"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # All that is left of torchport is its entry point, which torch would load.
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", LOADS, sysconfig.get_paths()["purelib"]],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert "Unknown builtin op: torchport::island" in said["net.pt"]
    assert said["net.pt2"].startswith("RuntimeError")  # which refers to the log
    assert "failed to resolve torch.ops.torchport.island.default to an operator" in ran.stderr
