"""A full disk: one message, the process survives, and no partial file is left."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport.records.deferred_error_file import written_by_torch

pytestmark = pytest.mark.usefixtures("forked_python")

# A file size limit makes a write fail in the middle, as a full disk does.
CODE = """
import resource, sys, torch, torchport
from pathlib import Path
from torch import nn
from torchport.errors import PackageError
from torchport.packaging.write_file import FileContents, write_model
folder, kind, separate = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "separate"
x = torch.rand(1, 600)
compiled = torchport.compile(nn.Linear(600, 600).eval(), (x,), target="host", options={"cache": False})
old = folder / ("net" + kind)
old.write_text("the old file")
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # the weights have 1.4 MB
try:
    write_model(compiled, (x,), {}, old, FileContents(separate_weights=separate))
except PackageError as error:
    print(str(error).replace(str(folder), ""))
print(sorted(path.name for path in folder.iterdir()), old.read_text())
"""


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (".pt2", "archive"),
        (".pt2", "separate"),
        pytest.param(".pt", "archive", marks=pytest.mark.conformance),
    ],
)
def test_a_full_disk_is_one_message(kind, where, tmp_path):
    lines = run_fresh(CODE, str(tmp_path), kind, where).splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("cannot be written: File too large")
    assert lines[1] == f"['net{kind}'] the old file"


@pytest.mark.conformance  # a command shows the error's message, whatever it is
def test_the_command_shows_the_same_message(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef load():\n    return torch.nn.Linear(600, 600).eval(), (torch.rand(1, 600),)\n"
    )
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "from torchport.cli.main import main\n"
        "main()\n"
    )
    command = ["compile", f"{tmp_path}/net.py::load", "--target", "host", "-o", f"{tmp_path}/net.pt2"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"{tmp_path}/net.pt2: cannot be written: File too large"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["net.py"]


def test_errors_are_raised_after_torch_has_finished():
    full = written_by_torch(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"), full as file:
        torch.jit.save(torch.jit.script(nn.Linear(600, 600)), file)


def test_torch_reads_what_is_written(tmp_path):
    x = torch.rand(1, 4)
    compiled = torchport.compile(nn.Linear(4, 2).eval(), (x,), target="host")
    torchport.save(compiled, tmp_path / "net.pt2")
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(x), compiled(x))


GENERATED = """
import resource, sys, torch, torchport
from pathlib import Path
from torchport.errors import CodegenError
folder, ending = Path(sys.argv[1]), sys.argv[2]
graph = torchport.trace_graph(torch.nn.Linear(600, 600).eval(), (torch.rand(1, 600),))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # the weights have 1.4 MB
try:
    graph.generate_code(folder / "net.py", folder / f"net{ending}", check=False)
except CodegenError as error:
    print("cannot be written" in str(error), [path.name for path in folder.iterdir()])
"""


@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_weights_of_generated_code_are_written_atomically(ending, tmp_path):
    assert run_fresh(GENERATED, str(tmp_path), ending) == "True []"
