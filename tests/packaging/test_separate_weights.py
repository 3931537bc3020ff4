"""Weights in a separate file beside a package or a traced model."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport.errors import PackageError

pytestmark = pytest.mark.usefixtures("forked_python")

X = torch.rand(2, 100, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def compiled(target):
    torch.manual_seed(0)
    return torchport.compile(nn.Sequential(nn.Linear(100, 200), nn.ReLU()).eval(), (X,), target=target)


def weights_in(folder):
    return list(folder.glob("*.safetensors"))


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_separate_weights_of_a_package(compiled, tmp_path):
    path = tmp_path / "net.pt2"
    torchport.save(compiled, path, separate_weights=True)
    [weights] = weights_in(tmp_path)
    assert path.stat().st_size < 60_000  # the weights are 80,800 bytes
    assert weights.stat().st_size > 80_800
    assert list(load_file(weights)) == ["model/island_0"]
    assert torch.equal(torchport.load(path)(X), compiled(X))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (path, weights):
        file.rename(moved / file.name)
    torch.save(X, moved / "x.pt")
    code = (
        "import sys, torch, torchport; folder = sys.argv[1];"
        "print(torchport.load(folder + '/net.pt2')(torch.load(folder + '/x.pt')).tolist())"
    )
    assert run_fresh(code, str(moved)) == str(compiled(X).tolist())


def test_a_package_without_its_weights_is_refused(compiled, tmp_path):
    path = tmp_path / "net.pt2"
    torchport.save(compiled, path, separate_weights=True)
    [weights] = weights_in(tmp_path)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    torchport.runtime.island._loaded.clear()
    with pytest.raises(PackageError, match="its checksum does not match"):
        torchport.load(path)
    weights.write_bytes(content[:500])
    with pytest.raises(PackageError, match="cannot be read"):
        torchport.load(path)
    weights.unlink()
    with pytest.raises(PackageError, match=r"the file with the weights.*is missing.*TORCHPORT_WEIGHTS_DIR"):
        torchport.load(path)


def test_weights_are_found_through_the_environment_variable(compiled, tmp_path, monkeypatch):
    path, folder = tmp_path / "net.pt2", tmp_path / "weights"
    torchport.save(compiled, path, separate_weights=True)
    folder.mkdir()
    [weights] = weights_in(tmp_path)
    weights.rename(folder / weights.name)
    torchport.runtime.island._loaded.clear()
    monkeypatch.setenv("TORCHPORT_WEIGHTS_DIR", str(folder))
    assert torch.equal(torchport.load(path)(X), compiled(X))


def test_saving_again_leaves_one_file_of_weights(compiled, tmp_path):
    path = tmp_path / "net.pt2"
    (tmp_path / "net-mine.safetensors").write_bytes(b"of somebody else")
    torchport.save(compiled, path, separate_weights=True)
    first = set(weights_in(tmp_path))
    torchport.save(compiled, path, separate_weights=True)
    second = set(weights_in(tmp_path))
    assert len(second) == 2
    assert first & second == {tmp_path / "net-mine.safetensors"}
    assert torch.equal(torchport.load(path)(X), compiled(X))
    torchport.save(compiled, path)
    assert weights_in(tmp_path) == [tmp_path / "net-mine.safetensors"]


def test_a_package_that_cannot_be_written_leaves_no_weights(compiled, tmp_path):
    (tmp_path / "net.pt2").mkdir()
    with pytest.raises(PackageError):
        torchport.save(compiled, tmp_path / "net.pt2", separate_weights=True)
    assert weights_in(tmp_path) == []


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_separate_weights_of_a_traced_model(target, tmp_path):
    model = nn.Sequential(nn.Linear(100, 200), nn.ReLU()).eval()
    weights = tmp_path / "net.safetensors"
    traced = torchport.trace(
        model,
        X,
        target=target,
        settings=torchport.TraceSettings(separate_weights=weights, child_process=False),
    )
    traced.save(tmp_path / "net.pt")
    torch.save(X, tmp_path / "x.pt")
    assert (tmp_path / "net.pt").stat().st_size < 60_000
    code = (
        "import sys, torch; folder = sys.argv[1];"
        "print(torch.jit.load(folder + '/net.pt')(torch.load(folder + '/x.pt')).tolist())"
    )
    assert run_fresh(code, str(tmp_path)) == str(traced(X).tolist())
    weights.unlink()
    with pytest.raises(AssertionError, match="is missing"):
        run_fresh(code, str(tmp_path))
