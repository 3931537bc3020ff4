"""Files whose JSON was mutated, a thousand of each kind, with every digest corrected.

Whatever they contain, they are refused or run: no crash, no hang, and nothing in them is executed as code.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = 1000
SLICE = 20  # of them in `make test`

SCRIPT = """
import json, os, random, resource, signal, sys, warnings
from pathlib import Path
import torch, torchport
from torch import nn
from conformance.mutations import CANARY, mutate_json
from runtime.crafted_files import change_host_program, change_package
from torchport.errors import TorchportError

kind, target, folder, count = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.rand(2, 4)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 2), nn.Softmax(-1)).eval()
options = {"keep_ops": ["aten.relu"], "cache": False}
compiled = torchport.compile(lambda x: {"y": model(x), "n": 3}, (x,), target=target, options=options)
good = folder / "good.pt2"
torchport.save(compiled, good, with_graph=kind != "program")  # which would run instead
torchport.load(good)(x)
island = compiled.current_programs[0].program.graph_module
calls = [node for node in island.graph.nodes if node.target is torch.ops.torchport.island.default]
blob, meta = getattr(island, calls[0].args[0].target), json.loads(calls[0].args[1])
del compiled
limit = 16 << 30  # of addresses; the process itself has some
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def fail(*_):
    raise SystemExit("no code of a file may run")

os.system = fail
counts = {"refused": 0, "ran": 0}
bad = folder / "bad.pt2"
for number in range(count):
    (folder / "at").write_text(str(number))
    draw = random.Random(f"{kind} {target} {number}")
    torchport.runtime.island._loaded.clear()
    torchport.runtime.island._of_payload.clear()
    signal.alarm(60)  # ends the process: a hang is found
    try:
        if kind == "package":
            def change(data):
                new = mutate_json(data, draw)
                data.clear()
                data.update(new)
            loaded = torchport.load(change_package(good, bad, change))
            loaded(x)
            loaded(x[:1])
        elif kind == "program":
            def change(program):
                new = mutate_json(program, draw)
                program.clear()
                program.update(new)
            torchport.load(change_host_program(good, bad, change))(x)
        else:  # what a TorchScript file holds: the op's payload and metadata
            torch.ops.torchport.island(blob, json.dumps(mutate_json(meta, draw)), [torch.rand(2, 4)])
        counts["ran"] += 1
    except TorchportError:
        counts["refused"] += 1
    signal.alarm(0)
    if CANARY in os.environ:
        raise SystemExit("code of a file has run")
print(json.dumps(counts))
"""


def run(kind: str, target: str, folder: Path, count: int) -> None:
    tests = str(Path(__file__).parents[1])
    arguments = [kind, target, str(folder), str(count)]
    environment = {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
        env=environment,
    )
    at = (folder / "at").read_text() if (folder / "at").exists() else "none"
    assert done.returncode == 0, f"mutation {at}: {done.returncode}: {done.stderr[-3000:]}"
    assert '"refused"' in done.stdout


KINDS = [
    ("package", "host"),
    ("package", "openvino"),
    ("program", "host"),
    ("op", "host"),
    ("op", "openvino"),
]


@pytest.mark.conformance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "target"), KINDS)
def test_mutated_files_are_refused_or_run(kind, target, tmp_path):
    run(kind, target, tmp_path, COUNT)


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize(("kind", "target"), [("package", "host"), ("program", "host")])
def test_a_slice_of_them(kind, target, tmp_path):
    run(kind, target, tmp_path, SLICE)
