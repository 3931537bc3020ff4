"""A whole target in one file: runs additions, products and ReLU with NumPy.

It shows what a device plug-in implements; `docs/targets.md` walks through it. A distribution registers it
with an entry point: `numpy = "numpy_target:NumpyTarget"` in the group `torchport.targets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import TensorSpec, Verdict
from torchport.targets import Artifact, Availability, Island, Options
from torchport.targets.rule_target import Rule, Rules, RuleTarget
from torchport.targets.target import Runner

FORMAT = 1


@dataclass(frozen=True, slots=True)
class NumpyRule(Rule):
    """Everything known about an op: the dtypes that it supports, what it refuses, and its kernel."""

    kernel: Callable[..., numpy.ndarray]


def without_keywords(node: fx.Node) -> Verdict | None:
    """Refuse calls with keyword arguments."""
    return Verdict(False, "argument", f"{', '.join(node.kwargs)} is not supported") if node.kwargs else None


# The one registry: these ops are supported, on float32, and computed by these kernels.
RULES: Rules[NumpyRule] = Rules()
RULES.add("add.Tensor", NumpyRule("f", numpy.add, check=without_keywords))
RULES.add("mul.Tensor", NumpyRule("f", numpy.multiply))
RULES.add("relu.default", NumpyRule("f", lambda values: numpy.maximum(values, numpy.float32(0))))


@dataclass(frozen=True)
class NumpyOptions(Options):
    """The options of every target, and one of our own.

    Args:
        overflow: what NumPy does when a result is too large: `ignore`, `warn` or `raise`.
    """

    overflow: str = "ignore"


class NumpyTarget(RuleTarget[NumpyOptions, NumpyRule]):
    """NumPy on this machine's CPU."""

    name = "numpy"
    description = "NumPy on this machine's CPU; an example of a target"
    options_type = NumpyOptions
    build_format = FORMAT
    exact_integers = (0, 0)  # no rule takes integers

    def availability(self) -> Availability:
        """Return that NumPy is available, as always: torchport itself needs it."""
        version = numpy.__version__
        return Availability(True, f"NumPy {version}", version=version, devices=("CPU",))

    def version(self) -> str:
        """Return NumPy's version: an island built with another version is built again."""
        return numpy.__version__

    def rules(self) -> Rules[NumpyRule]:
        """Return the registry, which decides on verdicts, and on which ops are kept whole or decomposed."""
        return RULES

    def build(self, island: Island, options: NumpyOptions) -> Artifact:
        """Write the island as a line of JSON and its weights: bytes, no code."""
        steps: list[dict[str, object]] = []
        weights: list[bytes] = []
        outputs: list[str] = []
        for node in island.graph_module.graph.nodes:
            if node.op == "get_attr":
                array = getattr(island.graph_module, node.target).detach().contiguous().numpy()
                steps.append({"name": node.name, "weight": list(array.shape)})
                weights.append(array.tobytes())
            elif node.op == "call_function":
                steps.append({"name": node.name, "op": str(node.target), "args": _arguments(node)})
            elif node.op == "output":
                outputs = [value.name for value in node.args[0]]
        inputs = [node.name for node in island.graph_module.graph.nodes if node.op == "placeholder"]
        head = json.dumps({"inputs": inputs, "steps": steps, "outputs": outputs}).encode()
        payload = numpy.frombuffer(bytearray(head + b"".join(weights)), dtype=numpy.uint8)
        return Artifact(payload, {"format": FORMAT, "head_bytes": len(head)})

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: NumpyOptions,
    ) -> Runner:
        """Return a function that computes the steps one after another."""
        if artifact.properties.get("format") != FORMAT:
            raise TargetError("the island has another format", where=self.name, remedy="compile again")
        size = artifact.properties["head_bytes"]
        program = json.loads(artifact.payload[:size].tobytes())
        weights = _read_weights(program["steps"], artifact.payload[size:])
        calls = [step for step in program["steps"] if "op" in step]

        def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            values = weights | {
                name: argument.detach().numpy()
                for name, argument in zip(program["inputs"], arguments, strict=True)
            }
            with numpy.errstate(over=options.overflow):
                for call in calls:
                    taken = [values[item] if isinstance(item, str) else item for item in call["args"]]
                    values[call["name"]] = RULES[call["op"]].kernel(*taken)
            # Copies: an island's results must not share memory with anything.
            return [torch.from_numpy(numpy.array(values[name])) for name in program["outputs"]]

        return run


def _arguments(node: fx.Node) -> list[object]:
    """Return a call's arguments as JSON: nodes by name, numbers as they are."""
    return [argument.name if isinstance(argument, fx.Node) else argument for argument in node.args]


def _read_weights(steps: Sequence[dict[str, object]], data: numpy.ndarray) -> dict[str, numpy.ndarray]:
    weights, start = {}, 0
    for step in steps:
        if "weight" in step:
            count = int(numpy.prod(step["weight"]))
            array = numpy.frombuffer(data, numpy.float32, count, start)
            weights[str(step["name"])] = array.reshape(step["weight"])
            start += array.nbytes
    return weights
