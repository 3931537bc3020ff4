"""Programs with open sizes in a file: they take the same sizes when loaded, and refuse others by guard."""

import json
import zipfile

import pytest
import torch
from torch.export import Dim

import torchport
from torchport.errors import RuntimeRefusal, TorchportError

ROWS, LENGTH = Dim("rows", min=1, max=6), Dim("length", min=1, max=20)


def model(x):
    rows, length = x.shape[:2]
    return (x * 2 + torch.arange(length)[:, None]).view(rows * length, 2, 2).softmax(-1)


@pytest.fixture
def path(tmp_path, target):
    compiled = torchport.compile(
        model, (torch.randn(2, 7, 4),), dynamic_shapes=({0: ROWS, 1: LENGTH},), target=target
    )
    torchport.save(compiled, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def test_a_loaded_model_takes_all_sizes(path):
    loaded = torchport.load(path)
    assert [str(spec) for spec in loaded.record.inputs.values()] == ["float32[-1, -1, 4]"]
    for shape in ((1, 1, 4), (1, 20, 4), (6, 1, 4), (2, 7, 4), (5, 11, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), model(x), atol=1e-5, rtol=1e-5)
    assert loaded.fallbacks.fallbacks == 0


def test_sizes_outside_the_range_are_refused_by_guard(path):
    loaded = torchport.load(path)
    with pytest.raises(RuntimeRefusal, match="size 1 of tensor 0 <= 20"):
        loaded(torch.randn(2, 21, 4))
    with pytest.raises(RuntimeRefusal, match="size 2 of tensor 0 == 4"):
        loaded(torch.randn(2, 7, 5))


def test_torch_export_load_opens_it_for_the_examples_sizes(path):
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(torch.export.load(path).module()(x), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("guards", [[["==", 1, 1]], [["exec", 1]], [["size", 9, 9]], [7]])
@pytest.mark.parametrize("target", ["host", pytest.param("openvino", marks=pytest.mark.conformance)])
def test_tampered_guards_give_a_refusal_or_the_right_result(path, guards):
    """A file's guards may admit inputs that its islands were not built for: islands check for themselves."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    (name,) = [entry for entry in entries if b'"torchport.package/' in entries[entry]]
    package = json.loads(entries[name])
    package["programs"][0]["guards"] = guards
    entries[name] = json.dumps(package).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    for shape in ((2, 7, 4), (2, 30, 4), (2, 7, 5)):
        x = torch.randn(shape)
        try:
            result = torchport.load(path)(x)
        except TorchportError:
            continue
        torch.testing.assert_close(result, model(x), atol=1e-5, rtol=1e-5)
