"""ResNet-50 and BERT-base, loaded from files in fresh processes: exactly the same results as in memory."""

import pytest
import torch

import torchport
from runtime.fresh_process import run_fresh
from torchport.packaging.write_file import write_model

pytestmark = pytest.mark.conformance

RUN = """
import sys, torch
kind, file, folder = sys.argv[1:]
args, kwargs, expected = torch.load(folder + "/call.pt")
if kind == "torchport":
    import torchport
    model = torchport.load(file)
elif kind == "jit":
    model = torch.jit.load(file)
else:
    model = torch.export.load(file).module()
with torch.no_grad():
    result = model(*args, **kwargs)
values = [result] if isinstance(result, torch.Tensor) else list(result.values())
print(len(values) == len(expected) and all(torch.equal(a, b) for a, b in zip(values, expected)))
"""


@pytest.mark.parametrize("name", ["torchvision:resnet50", "hf:bert-base-uncased"])
def test_a_model_survives_files_and_processes(name, target, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv(
        "OMP_NUM_THREADS", str(torch.get_num_threads())
    )  # the number of threads affects how sums are split
    model = torchport.zoo.load(name, weights=False)
    compiled = torchport.compile(model.module.eval(), model.args, model.kwargs, target=target)
    expected = [tensor for _, tensor in torchport.structure.tensors_in(compiled(*model.args, **model.kwargs))]
    torch.save((model.args, dict(model.kwargs), expected), tmp_path / "call.pt")
    for kind, file in (("torchport", "m.pt2"), ("jit", "m.pt"), ("export", "m.pt2")):
        path = tmp_path / file
        if not path.exists():
            write_model(compiled, model.args, model.kwargs, path)
        assert run_fresh(RUN, kind, str(path), str(tmp_path)) == "True", kind
