"""Islands compiled with torch's own compiler."""

import json
import operator

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import torchport
from targets.graphs import island_of, verdict_on
from torchport.errors import TargetError
from torchport.targets import Artifact, find
from torchport.targets.folded_scales import fold_scales
from torchport.targets.host.load import read_graph
from torchport.targets.inductor.load import embed

pytestmark = pytest.mark.usefixtures("forked_python")
INDUCTOR = find("inductor")
OPTIONS = INDUCTOR.make_options({})


@pytest.fixture(scope="module")
def inductor_cache(tmp_path_factory):
    """Return one folder for all tests of this file: the headers in it take seconds to compile."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(autouse=True)
def own_inductor_cache(inductor_cache, monkeypatch):
    """Use an inductor cache that was empty before these tests."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))


def built(function, *args):
    island = island_of(function, *args, target="inductor")
    artifact = INDUCTOR.build(island, OPTIONS)
    assert json.loads(json.dumps(artifact.properties)) == artifact.properties
    return island, artifact, INDUCTOR.load(artifact, island.inputs, island.outputs, OPTIONS)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        nn.init.uniform_(self.body[1].running_mean)
        nn.init.uniform_(self.body[1].running_var, 0.5, 2.0)

    def forward(self, x):
        return self.body(x).mean((2, 3))


def test_a_model_is_compiled_packaged_and_run(tmp_path):
    model, x = Net().eval(), torch.randn(1, 3, 8, 8)
    options = {"child_trial": False}  # as tested below
    compiled = torchport.compile(model, (x,), target="inductor", options=options)
    assert compiled.coverage.complete
    torch.testing.assert_close(compiled(x), model(x))
    torchport.save(compiled, tmp_path / "net.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "net.pt2")(x), model(x))


def test_inputs_of_any_layout_are_read_right_and_results_are_the_caller_s_own():
    _, _, run = built(lambda x, y: (x * 2 + y, y.clone()), torch.ones(3, 4), torch.ones(3, 4))
    for x in (torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2], torch.randn(1, 4).expand(3, 4)):
        y = torch.full((3, 4), 5.0)
        results = run([x, y])
        torch.testing.assert_close(results, [x * 2 + y, y])
        for result in results:
            result.fill_(-1)
        assert y.unique().tolist() == [5.0]


def test_nan_stays_nan():
    x = torch.tensor([float("nan"), -1.0, 2.0])
    _, _, run = built(lambda x: torch.relu(x) + 1, torch.ones(3))
    torch.testing.assert_close(run([x]), [torch.relu(x) + 1], equal_nan=True)


def test_nothing_times_nan_is_nan():
    def zeros(x):
        return x * 0, F.softshrink(x), torch.zeros_like(x) * x

    x = torch.tensor([float("nan"), float("inf"), 2.0])
    _, _, run = built(zeros, torch.ones(3))
    torch.testing.assert_close(run([x]), list(zeros(x)), equal_nan=True)


@pytest.mark.parametrize(
    ("op", "function", "args", "reason"),
    [
        ("aten.add.Tensor", lambda x: x + 100 > x, (torch.ones(2, dtype=torch.int8),), "dtype"),
        ("aten.acosh.default", torch.acosh, (torch.ones(2),), "argument"),
        ("aten.remainder.Scalar", lambda x: x % 3, (torch.ones(2),), "argument"),
        (
            "aten.div.Tensor_mode",
            lambda x: torch.div(x, 0.1, rounding_mode="floor"),
            (torch.ones(2),),
            "argument",
        ),
        (
            "aten.div.Tensor_mode",
            lambda x, y: x // y,
            (torch.ones(2).long(), torch.ones(2).long()),
            "argument",
        ),
        (
            "aten.remainder.Tensor",
            lambda x, y: x % y,
            (torch.ones(2).long(), torch.ones(2).long()),
            "argument",
        ),
        ("aten.relu.default", torch.relu, (torch.ones(0),), "shape"),
        ("aten.mul.Tensor", lambda x: x * x, (torch.ones(2, dtype=torch.complex64),), "dtype"),
        ("aten.native_dropout.default", lambda x: F.dropout(x), (torch.ones(2),), "random"),
    ],
)
def test_what_compiled_code_could_get_wrong_stays(op, function, args, reason):
    if op.startswith(("aten.div", "aten.remainder")):
        found = torchport.explain(function, args, target="inductor").stayed
        assert [row.reason for row in found] == [reason] * len(found)
        assert found
    elif op == "aten.native_dropout.default":
        found = torchport.explain(function, args, target="inductor").stayed
        assert reason in {row.reason for row in found}
    else:
        assert verdict_on(op, function, *args, target="inductor").reason == reason


def test_norms_are_folded_into_convolutions_and_nothing_else_is():
    model, x = Net().eval(), torch.randn(1, 3, 8, 8)
    island = island_of(model, x, target="inductor")
    artifact = INDUCTOR.build(island, OPTIONS)
    graph_module = read_graph(Artifact(artifact.payload, artifact.properties["island"]))
    fold_scales(graph_module)
    ops = [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]
    assert ops == ["aten.convolution.default", "aten.relu.default", "aten.mean.dim"]
    torch.testing.assert_close(graph_module(x)[0], model(x))


def test_a_convolution_and_a_norm_with_other_arguments_are_left_alone():
    aten = torch.ops.aten

    def folded(convolution, norm_size):
        graph = fx.Graph()
        x, weight = graph.placeholder("x"), graph.get_attr("weight")
        convolved = graph.call_function(aten.convolution.default, *convolution(x, weight))
        held = [graph.get_attr("held")] * 4
        norm = graph.call_function(
            aten._native_batch_norm_legit_no_training.default, (convolved, *held, 0.1, 1e-5)
        )
        graph.output((graph.call_function(operator.getitem, (norm, 0)),))
        weights = {"weight": torch.ones(4, 3, 3, 3), "held": torch.ones(norm_size)}
        graph_module = fx.GraphModule(weights, graph)
        before = len(graph.nodes)
        fold_scales(graph_module)
        return len(graph.nodes) < before

    def plain(x, weight):
        return (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}

    def by_keyword(x, weight):
        names = ("bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
        return (x, weight), dict(zip(names, plain(x, weight)[0][2:], strict=True))

    assert folded(plain, 4)
    assert not folded(by_keyword, 4)
    assert not folded(plain, 5)


def test_a_sum_that_varies_within_a_channel_is_left_alone():
    weight, picture = torch.randn(2, 3, 1, 1), torch.randn(4, 4)
    x = torch.randn(1, 3, 4, 4)
    island = island_of(lambda x: F.conv2d(x, weight) + picture, x, target="inductor")
    artifact = INDUCTOR.build(island, OPTIONS)
    graph_module = read_graph(Artifact(artifact.payload, artifact.properties["island"]))
    fold_scales(graph_module)
    torch.testing.assert_close(graph_module(x)[0], F.conv2d(x, weight) + picture)


def test_a_factor_for_each_image_is_not_one_for_each_channel():
    weight, factor = torch.randn(4, 3, 3, 3), torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(4, 1, 1, 1)
    x = torch.randn(4, 3, 5, 5)  # as many images as channels

    def model(x):
        return F.conv2d(x, weight) * factor

    island = island_of(model, x, target="inductor")
    folded = read_graph(find("host").build(island, find("host").make_options({})))
    fold_scales(folded)
    torch.testing.assert_close(folded(x)[0], model(x))


def test_a_convolution_whose_weights_are_given_has_a_layout_too():
    x, weight = torch.randn(1, 3, 5, 5), torch.randn(4, 3, 3, 3)
    island = island_of(lambda x, weight: F.conv2d(x, weight), x, weight, target="inductor")
    options = INDUCTOR.make_options({"channels_last": "on"})
    run = INDUCTOR.load(INDUCTOR.build(island, options), island.inputs, island.outputs, options)
    torch.testing.assert_close(run([x, weight]), [F.conv2d(x, weight)])


def test_the_compiled_form_is_used_by_its_maker_alone(monkeypatch):
    island, artifact, run = built(lambda x: torch.tanh(x) * 3, torch.ones(4))
    with_form = embed(artifact, run, OPTIONS)
    assert with_form.properties["compiled"]["seal"]
    again = []

    def load(some):
        monkeypatch.setattr(
            "torchport.targets.inductor.load.compile_graph",
            lambda *given: again.append(given) or run.made.compiled,
        )
        loaded = INDUCTOR.load(some, island.inputs, island.outputs, OPTIONS)
        x = torch.randn(4)
        torch.testing.assert_close(loaded([x]), [torch.tanh(x) * 3])

    load(with_form)
    assert not again
    compiled = {**with_form.properties["compiled"], "seal": "0" * 64}
    load(Artifact(with_form.payload, {**with_form.properties, "compiled": compiled}))
    assert len(again) == 1


@pytest.mark.parametrize(
    "change",
    [{"format": 9}, {"device": "meta"}, {"island": []}, {"island_bytes": -1}, {"island_bytes": 10**9}],
)
def test_properties_that_no_build_writes_are_refused(change):
    island = island_of(torch.relu, torch.ones(2), target="inductor")
    artifact = INDUCTOR.build(island, OPTIONS)
    with pytest.raises(TargetError):
        INDUCTOR.load(
            Artifact(artifact.payload, {**artifact.properties, **change}),
            island.inputs,
            island.outputs,
            OPTIONS,
        )


def test_a_payload_that_is_no_island_is_refused():
    island = island_of(torch.relu, torch.ones(2), target="inductor")
    artifact = INDUCTOR.build(island, OPTIONS)
    zeros = numpy.zeros_like(artifact.payload)
    with pytest.raises(TargetError):
        INDUCTOR.load(Artifact(zeros, artifact.properties), island.inputs, island.outputs, OPTIONS)


def test_options_and_a_machine_without_a_compiler(monkeypatch):
    with pytest.raises(TargetError, match="unknown channels_last 'of'"):
        INDUCTOR.make_options({"channels_last": "of"})
    monkeypatch.setenv("CXX", "/no/such/compiler")
    if not torch.cuda.is_available():
        assert INDUCTOR.availability().detail == "no C++ compiler found"
        with pytest.raises(TargetError, match="no C\\+\\+ compiler"):
            torchport.compile(torch.relu, (torch.ones(2),), target="inductor")


def test_torch_compile_runs_graphs_with_inductor_s_islands(torch_compile):
    model, x = Net().eval(), torch.randn(1, 3, 8, 8)
    compiled = torch_compile(model, "inductor", child_trial=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert torchport.fallbacks().fallbacks == 0


def test_torch_compile_trains_with_inductor_s_islands(torch_compile):
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    torch_compile(model, "inductor", child_trial=False)(x).square().sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    model(x).square().sum().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(found[name], weight.grad)


@pytest.mark.usefixtures("forked_python")
def test_an_island_is_tried_in_a_child_first_and_not_again(monkeypatch):
    from torchport.targets import child_build

    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(1, 4)
    asked = []
    run_child = child_build.run_child

    def noted(module, folder, log, **bounds):
        asked.append(json.loads((folder / "request.json").read_text())["run"])
        return run_child(module, folder, log, **bounds)

    monkeypatch.setattr(child_build, "run_child", noted)
    for _ in range(2):
        compiled = torchport.compile(model, (x,), target="inductor")
        torch.testing.assert_close(compiled(x), model(x))
    assert asked == [True]
    assert compiled.coverage.complete
