"""A rule-based target: an engine of forty lines does all that a target must do."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy
import pytest
import torch
from torch import fx, nn

import torchport
from targets.graphs import HandMade, aten
from torchport.records import Verdict
from torchport.targets import Artifact, Availability, Options, find, registry
from torchport.targets.rule_target import Rule, Rules, RuleTarget
from torchport.targets.target import choice


@torch.library.custom_op("toy_engine::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


# The engine: a rule with its kernel, options, and five methods.


@dataclass(frozen=True, slots=True)
class ToyRule(Rule):
    KINDS: ClassVar = {**Rule.KINDS, "h": frozenset({torch.bfloat16})}

    compute: Callable[..., torch.Tensor]


@dataclass(frozen=True)
class ToyOptions(Options):
    mode: str = choice("plain", ("plain", "loud"))


def refuses_alpha(node: fx.Node) -> Verdict | None:
    return Verdict(False, "argument", "alpha is given") if "alpha" in node.kwargs else None


RULES: Rules[ToyRule] = Rules()
RULES.add("add.Tensor", ToyRule("fih", torch.add, check=refuses_alpha))
RULES.add("relu.default", ToyRule("fh", torch.relu))
RULES.add("linear.default", ToyRule("f", torch.nn.functional.linear))
RULES.add("toy_engine.doubled.default", ToyRule("fh", lambda x: 2 * x))


class ToyTarget(RuleTarget[ToyOptions, ToyRule]):
    name, description, options_type = "toy", "a toy", ToyOptions
    exact_integers = (-1000, 1000)

    def availability(self):
        return Availability(True)

    def version(self):
        return "1"

    def rules(self):
        return RULES

    def build(self, island, options):
        steps = []
        for node in island.graph_module.graph.nodes:
            weight = getattr(island.graph_module, node.target).tolist() if node.op == "get_attr" else None
            args = fx.map_arg(node.args, lambda source: {"of": source.name})
            steps.append([node.op, node.name, str(node.target), weight, args])
        return Artifact(numpy.frombuffer(bytearray(json.dumps(steps).encode()), numpy.uint8), {})

    def load(self, artifact, inputs, outputs, options):
        steps = json.loads(artifact.payload.tobytes())

        def run(arguments):
            values, given = {}, iter(arguments)
            for op, name, target, weight, args in steps[:-1]:
                taken = [values[item["of"]] if isinstance(item, dict) else item for item in args]
                values[name] = {
                    "placeholder": lambda: next(given),
                    "get_attr": lambda: torch.tensor(weight),
                    "call_function": lambda: RULES[target].compute(*taken),
                }[op]()
            return [values[item["of"]].clone() for item in steps[-1][-1][0]]

        return run


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """The engine, as another distribution would provide it."""
    entry = EntryPoint("toy", f"{__name__}:ToyTarget", "torchport.targets")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry._all.cache_clear()
    yield find("toy")
    monkeypatch.undo()
    registry._all.cache_clear()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.linear(doubled(x))).cumprod(-1) + 1


X = torch.randn(2, 4)


def test_the_engine_takes_what_it_has_rules_for():
    coverage = torchport.explain(Model(), (X,), target="toy")
    assert [(row.op, row.reason) for row in coverage.stayed] == [("aten.cumprod.default", "no_lowering")]
    assert coverage.stayed[0].detail == "aten.cumprod.default has no lowering to toy"


def test_what_it_compiled_is_saved_and_loaded(tmp_path):
    model = Model()
    compiled = torchport.compile(model, (X,), target="toy", options={"cache": False, "mode": "loud"})
    assert (compiled.coverage.ops_remain, len(compiled.coverage.islands)) == (1, 2)
    torch.testing.assert_close(compiled(X), model(X))
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(X), model(X))


def test_a_choice_that_there_is_not_is_refused():
    with pytest.raises(torchport.TorchportError, match="toy: unknown mode 'lowd': did you mean 'loud'"):
        torchport.explain(Model(), (X,), target="toy", options={"mode": "lowd"})


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "reason"),
    [
        (aten.relu.default, (X,), {}, "supported"),
        (aten.relu.default, (X.bfloat16(),), {}, "supported"),
        (aten.relu.default, (X.double(),), {}, "dtype"),
        (aten.relu.default, (torch.ones(2, dtype=torch.int64),), {}, "dtype"),
        (aten.add.Tensor, (torch.tensor([999]), 1), {}, "supported"),
        (aten.add.Tensor, (torch.tensor([1000]), 1), {}, "integer_range"),
        (aten.add.Tensor, (X, X), {"alpha": 2}, "argument"),
        (aten.bernoulli.default, (X,), {}, "random"),
        (aten.tanh.default, (X,), {}, "no_lowering"),
        (torch.ops.toy_engine.doubled.default, (X,), {}, "supported"),
        (torch.ops.toy_engine.doubled.default, (X.double(),), {}, "dtype"),
    ],
)
def test_a_verdict_is_what_holds_for_all_ops_and_then_the_rule(op, args, kwargs, reason, toy):
    graph = HandMade()
    node = graph.call(op, *[graph.weight(a) if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    toy.prepare(graph.module(node))
    verdict = toy.verdict(node, toy.make_options({}))
    assert (verdict.ok, verdict.reason) == (reason == "supported", reason)


def test_an_op_with_a_rule_is_kept_whole(toy):
    assert {str(op) for op in toy.kept_composites()} == {"aten.linear.default"}
    assert not {str(op) for op in toy.decompositions()} & RULES.keys()


def test_an_op_has_one_rule():
    with pytest.raises(ValueError, match=r"two rules for aten\.relu\.default"):
        RULES.add("aten.relu.default", RULES["aten.relu.default"])
