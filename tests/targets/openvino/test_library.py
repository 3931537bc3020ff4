"""OpenVINO not installed, without the requested device, or without the precision."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest
import torch

import torchport
from targets.graphs import HandMade, aten, specs
from torchport.errors import TargetError
from torchport.targets import Island, find
from torchport.targets.openvino import library

OPENVINO = find("openvino")
ONE = (torch.ones(1, 2),)
MISSING = 'pip install "torchport[openvino]"'


@pytest.fixture
def without_openvino(monkeypatch):
    """Pretend that OpenVINO is not installed."""

    def no_version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setattr(library, "version", no_version)
    caches = (library.openvino, library.core)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_it_says_what_is_installed():
    availability = OPENVINO.availability()
    assert availability.ok
    assert "CPU" in availability.devices
    assert availability.version == OPENVINO.version()
    assert availability.version


@pytest.mark.usefixtures("without_openvino")
class TestMissing:
    def test_it_says_how_to_install_it(self):
        availability = OPENVINO.availability()
        assert (availability.ok, availability.detail) == (False, "OpenVINO is not installed")
        assert MISSING in availability.remedy

    def test_compiling_is_refused_before_anything_is_built(self):
        with pytest.raises(TargetError) as caught:
            torchport.compile(torch.nn.ReLU(), ONE, target="openvino")
        assert MISSING in str(caught.value)

    def test_the_backend_is_refused(self, torch_compile):
        with torch.no_grad(), pytest.raises(Exception, match="OpenVINO cannot be imported") as caught:
            torch_compile(torch.nn.ReLU(), "openvino")(*ONE)
        assert MISSING in str(caught.value)

    def test_explaining_needs_no_library(self):
        coverage = torchport.explain(torch.nn.Linear(2, 3), ONE, target="openvino")
        assert (coverage.ops_before, coverage.ops_remain) == (1, 0)

    def test_the_host_works_on(self):
        assert torchport.compile(torch.nn.ReLU(), ONE, target="host")(*ONE).tolist() == [[1.0, 1.0]]


def test_a_device_that_is_absent_names_those_that_are_there():
    with pytest.raises(TargetError) as caught:
        torchport.compile(torch.nn.ReLU(), ONE, options={"device": "TPU"})
    assert "OpenVINO finds no device 'TPU' here" in str(caught.value)
    assert "CPU" in caught.value.remedy


@pytest.mark.parametrize("device", ["CPU.0", "CPU.7"])  # OpenVINO compiles for CPU, but not for CPU.0
def test_a_device_of_another_number_is_absent_too(device):
    with pytest.raises(TargetError, match=f"OpenVINO finds no device '{device}' here"):
        torchport.compile(torch.nn.ReLU(), ONE, options={"device": device})


class TwoGpus:
    """A core that finds two GPUs, and compiles for none with a property that it does not know."""

    available_devices = ("CPU", "GPU.0", "GPU.1")

    def compile_model(self, model, device, config):
        raise RuntimeError(f"{device}: {list(config)} was not found")


@pytest.mark.parametrize("device", ["GPU", "GPU.0", "GPU.1"])
def test_a_config_is_checked_for_each_name_of_a_gpu(monkeypatch, device):
    monkeypatch.setattr(library, "core", TwoGpus)
    with pytest.raises(TargetError, match=rf"rejects the config .*{device}: \['NO_SUCH'\] was not found"):
        OPENVINO.make_options({"device": device, "config": {"NO_SUCH": 1}})


@pytest.mark.parametrize(("precision", "capability"), [("bfloat16", "BF16"), ("float16", "FP16")])
def test_a_precision_is_taken_where_the_device_has_it_and_refused_elsewhere(precision, capability):
    able = library.core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    model, x = torch.nn.Linear(64, 8).eval(), torch.randn(4, 64)

    def compile():
        return torchport.compile(model, (x,), options={"precision": precision})

    if capability in able:
        torch.testing.assert_close(compile()(x), model(x).detach(), rtol=5e-2, atol=5e-2)
    else:
        with pytest.raises(TargetError, match=f"CPU does not compute in {precision}") as caught:
            compile()
        assert "precision=float32" in caught.value.remedy


def test_a_refusal_of_openvino_s_frontend_is_a_refusal_of_the_island():
    graph = HandMade()
    x = graph.input(4, dtype=torch.float32)
    result = graph.graph.call_function(aten.special_bessel_j0.default, (x,))
    result.meta["val"] = torch.empty(4, device="meta")
    island = Island("island_7", graph.module(result), specs([x]), specs([result]))
    with pytest.raises(TargetError, match="openvino, island_7: OpenVINO refuses the island"):
        OPENVINO.build(island, OPENVINO.make_options({}))
