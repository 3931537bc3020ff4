"""OpenVINO's compiled form in packages: used only where it matches the device and configuration."""

import json
import zipfile

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport import targets
from torchport.errors import PackageError
from torchport.packaging.embed_compiled import embed_compiled
from torchport.packaging.load_model import read_package
from torchport.targets import Artifact
from torchport.targets.openvino import load

X = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3)).eval()


@pytest.fixture
def embedded(model):
    """Return the artefact of an island with its compiled form, and what loads it."""
    compiled = torchport.compile(model, (X,))
    graph_module, [meta] = embed_compiled(compiled.current_programs[0].program)
    artifact = Artifact(getattr(graph_module, meta.name).numpy(), meta.properties)
    target = targets.find("openvino")
    options = target.make_options(meta.options)

    def run(given):
        runner = target.load(given, meta.inputs, meta.outputs, options)
        return runner.imported, runner([X])[0]

    return artifact, run, compiled(X)


def islands(loaded):
    return [island.runner for made in loaded._programs for island in made.program.islands.values()]


def changed(artifact, **made_for):
    entry = artifact.properties["compiled"]
    made = {**entry, "made_for": {**entry["made_for"], **made_for}}
    return Artifact(artifact.payload, {**artifact.properties, "compiled": made})


def test_a_package_holds_it_and_loading_uses_it(model, tmp_path):
    compiled = torchport.compile(model, (X,))
    torchport.save(compiled, tmp_path / "with.pt2")
    torchport.save(compiled, tmp_path / "without.pt2", compiled_form=False)
    fast, slow = (torchport.load(tmp_path / name) for name in ("with.pt2", "without.pt2"))
    assert [runner.imported for runner in islands(fast)] == [True]
    assert [runner.imported for runner in islands(slow)] == [False]
    assert torch.equal(fast(X), compiled(X))
    assert torch.equal(slow(X), compiled(X))
    form = read_package(tmp_path / "with.pt2").programs[0].record.islands[0].properties["compiled"]
    assert form["bytes"] < 30_000  # it contains none of the 156,000 bytes of weights
    assert form["made_for"]["device"] == "CPU"


SLICES = {
    "the last": lambda x, y: torch.cat([x, y], -1)[..., -3:].sum(-1),
    "all but the first": lambda x, y: x[:, 1:] * y[:, 1:],
    "every second": lambda x, y: (x[:, :, 1::2] + y[:, :, 1::2]).relu(),
    "rolled": lambda x, y: (x * y).roll((1, -2), (1, 2)).sum(1),
}


@pytest.mark.parametrize("slices", SLICES.values(), ids=SLICES)
def test_slices_that_go_on_to_the_end_are_the_same_from_a_file(slices, tmp_path):
    """Their end is torch's largest integer, of which OpenVINO's import took the lower half."""

    class Sliced(nn.Module):
        def forward(self, x, y):
            return slices(x, y)

    x, y = torch.randn(2, 3, 5, 4)
    compiled = torchport.compile(Sliced(), (x, y))
    torchport.save(compiled, tmp_path / "net.pt2")
    loaded = torchport.load(tmp_path / "net.pt2")
    assert compiled.coverage.complete
    assert [runner.imported for runner in islands(loaded)] == [True]
    torch.testing.assert_close(loaded(x, y), slices(x, y))


def test_a_form_that_is_imported_as_another_model_is_left_out(model, tmp_path, monkeypatch, caplog):
    original = load.import_compiled

    def import_another(artifact, device, config):
        found = original(artifact, device, config)
        if found is not None:  # as if the import lost something
            weights = artifact.payload.copy()
            weights[: artifact.properties["weights_bytes"]] = 0
            found = original(Artifact(weights, artifact.properties), device, config)
        return found

    monkeypatch.setenv("TORCHPORT_TRUST_COMPILED_FORM", "1")
    monkeypatch.setattr(load, "import_compiled", import_another)
    torchport.save(torchport.compile(model, (X,)), tmp_path / "net.pt2")
    assert "as another model" in caplog.text
    loaded = torchport.load(tmp_path / "net.pt2")
    assert [runner.imported for runner in islands(loaded)] == [False]
    torch.testing.assert_close(loaded(X), model(X))


def test_a_traced_model_holds_it_too(model, tmp_path):
    traced = torchport.trace(model, X, settings=torchport.TraceSettings(child_process=False))
    without = torchport.trace(
        model, X, settings=torchport.TraceSettings(child_process=False, compiled_form=False)
    )
    metas = [json.loads(script.torchport_report)["islands"][0]["properties"] for script in (traced, without)]
    assert ["compiled" in properties for properties in metas] == [True, False]
    traced.save(tmp_path / "net.pt")
    assert torch.equal(torch.jit.load(tmp_path / "net.pt")(X), without(X))


@pytest.mark.parametrize(
    "other",
    [
        {"openvino": "2025.1.0"},
        {"device": "GPU"},
        {"name": "another processor"},
        {"capabilities": ["FP32"]},
        {"processor": "0123"},
        {"config": {"INFERENCE_PRECISION_HINT": "bf16"}},
    ],
)
def test_a_form_for_something_else_is_not_used(embedded, other):
    artifact, run, expected = embedded
    for given, imported in ((artifact, True), (changed(artifact, **other), False)):
        used, result = run(given)
        assert used is imported
        assert torch.equal(result, expected)


@pytest.mark.parametrize("damage", ["cut", "zeros", "noise"])
def test_a_form_that_openvino_refuses_is_not_used(embedded, damage):
    artifact, run, expected = embedded
    entry = artifact.properties["compiled"]
    at, size = entry["at"], entry["bytes"]
    payload = artifact.payload.copy()
    if damage == "cut":
        size = 100
    else:
        noise = numpy.random.default_rng(0).integers(0, 256, size, dtype=numpy.uint8)
        payload[at:] = 0 if damage == "zeros" else noise
    properties = {**artifact.properties, "compiled": {**entry, "bytes": size}}
    used, result = run(Artifact(payload, properties))
    assert not used
    assert torch.equal(result, expected)


def test_a_damaged_form_does_not_reach_openvino(model, tmp_path):
    path, target = tmp_path / "net.pt2", tmp_path / "damaged.pt2"
    torchport.save(torchport.compile(model, (X,)), path)
    form = read_package(path).programs[0].record.islands[0].properties["compiled"]
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = bytearray(old.read(name))
            if "/data/weights/weight_" in name:
                content[form["at"] + 200] ^= 1
            new.writestr(name, bytes(content))
    with pytest.raises(PackageError, match="payload is damaged: its checksum does not match"):
        torchport.load(target)


def test_the_form_is_made_of_the_options_that_the_island_has(model, tmp_path):
    compiled = torchport.compile(model, (X,), options={"threads": 1})
    torchport.save(compiled, tmp_path / "one.pt2")
    record = read_package(tmp_path / "one.pt2").programs[0].record
    assert record.islands[0].properties["compiled"]["made_for"]["config"]["INFERENCE_NUM_THREADS"] == "1"
    assert [runner.imported for runner in islands(torchport.load(tmp_path / "one.pt2"))] == [True]


def test_an_island_that_is_all_copies_can_be_saved(tmp_path):
    compiled = torchport.compile(lambda x: (x.reshape(6, 256), x.relu()), (X,))
    torchport.save(compiled, tmp_path / "copies.pt2")
    for ours, theirs in zip(
        torchport.load(tmp_path / "copies.pt2")(X), (X.reshape(6, 256), X.relu()), strict=True
    ):
        assert torch.equal(ours, theirs)
