"""OpenVINO island files, damaged in many ways a thousand times each: refused, or right; no crash."""

import pytest

from runtime.fresh_process import run_fresh

pytestmark = pytest.mark.conformance

PREPARE = """
import random, sys, torch, torchport
from torch import nn
from torchport.errors import TorchportError
kind, damage, folder = sys.argv[1:]
torch.manual_seed(0)
x = torch.rand(1, 4)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
good = folder + "/good." + kind
if kind == "pt2":
    torchport.save(torchport.compile(model, (x,)), good, with_graph=True)
    load = torchport.load
else:
    settings = torchport.TraceSettings(child_process=False, dynamic_batch_size=True)
    torchport.trace(model, x, settings=settings).save(good)
    load = torch.jit.load
content = open(good, "rb").read()
expected = load(good)(x)
draw = random.Random(0)
seen = {"refused": 0, "right": 0}
"""
DAMAGE = """
for _ in range(1000):
    bad = bytearray(content)
    if damage == "cut":
        bad = bad[: draw.randrange(len(bad))]
    else:
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
    open(folder + "/bad." + kind, "wb").write(bad)
    torchport.runtime.island._loaded.clear()
    torchport.runtime.island._of_payload.clear()
    try:
        result = load(folder + "/bad." + kind)(x)
    except TorchportError as error:
        assert kind == "pt2" and type(error).__name__ == "PackageError", repr(error)
        seen["refused"] += 1
    except Exception as error:  # torch's own reader has no specific error type
        assert kind == "pt", repr(error)
        seen["refused"] += 1
    else:
        assert torch.equal(result, expected)
        seen["right"] += 1
print(seen["refused"])
"""


@pytest.mark.parametrize("damage", ["cut", "flip"])
@pytest.mark.parametrize("kind", ["pt2", "pt"])
def test_damaged_files_are_refused_or_right(kind, damage, tmp_path):
    refused = int(run_fresh(PREPARE + DAMAGE, kind, damage, str(tmp_path)))
    assert refused == 1000 if damage == "cut" else refused > 100
