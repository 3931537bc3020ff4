"""docs/targets.md tells how to write a target: the example is installed, found and right."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from docs.example_target import install
from docs.markdown import blocks, sections
from torchport.targets import Target

pytestmark = pytest.mark.usefixtures("forked_python")

USE = """
import json, torch, torchport
from torchport import targets

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return torch.relu(x * self.scale + 1.0).sum(dim=1)


net, x = Net().eval(), torch.randn(3, 4)
compiled = torchport.compile(net, (x,), target="numpy")
backend = torch.compile(net, backend="torchport", options={"target": "numpy"})
with torch.no_grad():
    expected, result, through_backend = net(x), compiled(x), backend(x)
wide = torchport.explain(net.double(), (x.double(),), target="numpy")
print(json.dumps({
    "names": targets.names(),
    "ok": torchport.compare(result, expected).ok,
    "backend_ok": torchport.compare(through_backend, expected).ok,
    "islands": [island.ops for island in compiled.coverage.islands],
    "stayed": [[op.op, op.reason] for op in compiled.coverage.stayed],
    "wide": sorted({op.reason for op in wide.stayed}),
    "overflow": targets.find("numpy").make_options({"overflow": "raise"}).overflow,
}))
"""


def test_the_example_is_found_by_its_entry_point_and_is_right(root, tmp_path):
    entry = re.search(r"^numpy = \"(.+)\"$", (root / "docs" / "targets.md").read_text(), re.M)
    install(entry[1], tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"host", "numpy", "onnxruntime", "openvino", "ttnn"} <= set(found["names"])
    assert found["ok"]
    assert found["backend_ok"]
    assert found["islands"] == [3]  # mul, add and relu
    assert found["stayed"] == [["aten.sum.dim_IntList", "no_lowering"]]
    assert found["wide"] == ["dtype", "no_lowering"]
    assert found["overflow"] == "raise"


@pytest.fixture
def document(root) -> dict[str, str]:
    return sections(root / "docs" / "targets.md")


def test_every_member_that_a_target_may_define_is_described(document):
    described = set(re.findall(r"^\| `.+?\|", document["The interface"], re.M))
    names = {name for cell in described for name in re.findall(r"`(\w+)", cell)}
    members = {name for name in (*vars(Target), *inspect.get_annotations(Target)) if not name.startswith("_")}
    # The base answers these two out of `options_type`.
    assert names == members - {"make_options", "options_json"}


def python_blocks(root):
    documented = blocks(root / "docs" / "targets.md")
    return [block.text for block in documented if block.kind == "python" and not block.file]


def test_the_engine_that_the_document_shows_has_rules_and_options(root):
    names = {"__name__": "shown"}
    exec(compile(python_blocks(root)[1], "targets.md", "exec"), names)
    target = names["DeviceTarget"]
    assert target.__abstractmethods__ == {"availability", "version", "build", "load"}
    assert target.rules(None)["torchvision.nms.default"].kernel == "nms"
    assert torch.bfloat16 in names["RULES"]["aten.add.Tensor"].dtypes


def test_what_the_document_shows_is_what_the_example_does(root):
    shown = python_blocks(root)[0]
    example = ast.parse((root / "examples" / "numpy_target.py").read_text())
    [ours] = [node for node in ast.walk(ast.parse(shown)) if isinstance(node, ast.ClassDef)]
    [theirs] = [
        node for node in ast.walk(example) if isinstance(node, ast.ClassDef) and node.name == ours.name
    ]
    assert [ast.dump(node) for node in ours.body] == [ast.dump(node) for node in theirs.body[1:]]
