"""The time of each op by the engine's own clock, aggregated by module and line, with the roofline."""

import json

import pytest
import torch
from torch import nn

import torchport
from torchport.bringup import RooflineLimits
from torchport.errors import SurveyError, TargetError
from torchport.records import OpTime, Profile
from torchport.targets import registry
from torchport.targets.host import HostTarget

LIMITS = RooflineLimits(1e9, 1e9)


class Net(nn.Module):
    def __init__(self, norm=True):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.head = nn.Linear(8 * 6 * 6, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(x.flatten(1))


X = torch.rand(1, 3, 8, 8)
CONV_FLOPS = 2 * 8 * 6 * 6 * 3 * 3 * 3


def named(profile, op):
    [row] = [row for row in profile.ops if row.op == op]
    return row


@pytest.fixture(scope="module")
def on_host():
    return torchport.profile(Net().eval(), (X,), target="host", roofline=LIMITS, name="net")


def test_every_op_has_its_time_kernel_module_and_line(on_host):
    row = named(on_host, "aten.convolution.default")
    assert (row.module_path, row.place, row.precision) == ("stem", "host", "float32")
    assert row.kernel.startswith("aten::")
    assert 0 < row.seconds < 10
    relu = named(on_host, "aten.relu.default")
    assert (relu.module_path, "test_profile_model.py" in relu.source) == ("", True)
    assert on_host.seconds > 0
    assert on_host.measured_seconds == pytest.approx(sum(row.seconds for row in on_host.ops))
    assert (on_host.model, on_host.target, on_host.unmeasured) == ("net", "host", {})


def test_the_roofline_is_the_longer_of_compute_and_memory_time(on_host):
    row = named(on_host, "aten.convolution.default")
    assert row.flops == CONV_FLOPS
    assert row.roofline_seconds == pytest.approx(max(row.flops, row.bytes) / 1e9)
    assert row.roofline_share == pytest.approx(row.roofline_seconds / row.seconds)


@pytest.mark.parametrize(
    ("by", "key"), [("op", "aten.relu.default"), ("module", "stem"), ("kernel", "aten::addmm")]
)
def test_times_are_aggregated(on_host, by, key):
    folded = on_host.fold(by)
    assert key in {row.key for row in folded}
    assert sum(row.seconds for row in folded) == pytest.approx(on_host.measured_seconds)
    assert sum(row.count for row in folded) == len(on_host.ops)
    assert [row.seconds for row in folded] == sorted((row.seconds for row in folded), reverse=True)


def test_it_round_trips_through_json_and_gives_a_chrome_trace(on_host):
    assert Profile.from_json(json.loads(json.dumps(on_host.to_json()))) == on_host
    events = json.loads(json.dumps(on_host.chrome_trace()))["traceEvents"]
    assert len(events) == len(on_host.ops)
    ends = [event["ts"] + event["dur"] for event in events]
    assert [event["ts"] for event in events[1:]] == pytest.approx(ends[:-1])
    assert {event["ph"] for event in events} == {"X"}


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_engines_report_the_kernels_that_actually_ran(target):
    profile = torchport.profile(Net(norm=False).eval(), (X,), target=target, roofline=LIMITS)
    row = named(profile, "aten.convolution.default")
    assert (row.place, row.module_path, row.flops) == (target, "stem", CONV_FLOPS)
    assert row.seconds > 0
    assert "Conv" in row.kernel
    assert "32" in row.precision
    assert named(profile, "aten.linear.default").module_path == "head"


def test_ops_on_the_host_are_timed_by_torch():
    options = {"keep_ops": ["aten.relu"]}
    profile = torchport.profile(Net().eval(), (X,), target="openvino", options=options, roofline=LIMITS)
    row = named(profile, "aten.relu.default")
    assert row.place == "host"
    assert row.kernel.startswith("aten::")


class Clocked(HostTarget):
    """Reports op times that a test sets."""

    name = "clocked"
    times = None

    def op_times(self, island, options, arguments):
        nodes = [node.name for node in island.graph_module.graph.nodes if node.op == "call_function"]
        return None if self.times is None else [OpTime(*entry) for entry in self.times(nodes)]


@pytest.fixture
def clocked(monkeypatch):
    """Profiles on a target with the op times that a test sets."""

    def clock(times):
        target = Clocked()
        target.times = times
        known = registry._all() | {"clocked": target}
        monkeypatch.setattr(registry, "_all", lambda: known)
        return torchport.profile(Net().eval(), (X,), target="clocked", roofline=LIMITS)

    return clock


def test_fused_ops_are_one_row_named_after_the_op_with_the_most_flops(clocked):
    profile = clocked(
        lambda nodes: [
            (next(name for name in nodes if "relu" in name), 0.5, "conv_relu", "f32"),
            (next(name for name in nodes if "addmm" in name), 0.25, "gemm", "f32", True),
            ("", 0.125, "reorder"),
            ("", 0.0, "not run"),
        ]
    )
    conv, gemm, other = sorted(profile.ops, key=lambda row: -row.seconds)
    assert (conv.op, conv.kernel, conv.module_path) == ("aten.convolution.default", "conv_relu", "stem")
    assert {"aten.relu.default", "aten._native_batch_norm_legit_no_training.default"} <= set(conv.fused)
    assert conv.flops == CONV_FLOPS
    assert (gemm.op, gemm.is_reference) == ("aten.addmm.default", True)
    assert profile.reference_ops == (gemm,)
    assert (other.op, other.kernel, other.roofline_share) == ("", "reorder", None)
    assert profile.measured_seconds == 0.875


def test_an_engine_without_op_times_is_timed_as_a_whole(clocked):
    profile = clocked(None)
    assert profile.ops == ()
    [spent] = profile.unmeasured.values()
    assert spent > 0


def test_the_machines_limits_are_measured_unless_given():
    profile = torchport.profile(nn.ReLU(), (X,), target="host")
    assert profile.peak_flops > 1e6
    assert profile.bandwidth > 1e6


def test_buffers_and_the_random_state_are_restored():
    model = Net().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    torchport.profile(model, (X,), target="host", roofline=LIMITS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_invalid_arguments_are_refused():
    with pytest.raises(TargetError, match="name a target"):
        torchport.profile(nn.ReLU(), (X,), target="auto")
    with pytest.raises(SurveyError, match="must be positive"):
        torchport.profile(nn.ReLU(), (X,), target="host", roofline=RooflineLimits(0, 1))
