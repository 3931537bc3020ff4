"""A whole target in one file: runs additions, products and ReLU with NumPy.

It shows what a device plug-in answers; `docs/targets.md` walks through it. A distribution makes it known with
an entry point: `numpy = "numpy_target:NumpyTarget"` in the group `torchport.targets`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import SUPPORTED, TensorSpec, Verdict
from torchport.targets import Artifact, Availability, Island, Options, Target
from torchport.targets.decompositions import core_decompositions
from torchport.targets.target import Decompositions, Runner

FORMAT = 1

# The one registry: an op that stands here is taken, and this is how it is computed.
KERNELS = {
    "aten.add.Tensor": numpy.add,
    "aten.mul.Tensor": numpy.multiply,
    "aten.relu.default": lambda values: numpy.maximum(values, numpy.float32(0)),
}


@dataclass(frozen=True)
class NumpyOptions(Options):
    """The options of every target, and one of our own.

    Args:
        overflow: what NumPy does when a result is too large: `ignore`, `warn` or `raise`.
    """

    overflow: str = "ignore"


class NumpyTarget(Target):
    """NumPy on this machine's CPU."""

    name = "numpy"
    description = "NumPy on this machine's CPU; an example of a target"
    options_type = NumpyOptions
    build_format = FORMAT

    def availability(self) -> Availability:
        """NumPy is always there: torchport needs it itself."""
        version = numpy.__version__
        return Availability(True, f"NumPy {version}", version=version, devices=("CPU",))

    def version(self) -> str:
        """Return NumPy's version: an island that another one built is built again."""
        return numpy.__version__

    def decompositions(self) -> Decompositions:
        """Take everything apart that torch can, but what we have a kernel for."""
        return {op: how for op, how in core_decompositions().items() if str(op) not in KERNELS}

    def verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Take the ops of the registry on float32, without keyword arguments."""
        name = str(node.target)
        if name not in KERNELS:
            return Verdict(False, "no_lowering", f"there is no kernel for {name}")
        values = [source.meta["val"] for source in (*node.all_input_nodes, node)]
        if any(value.dtype is not torch.float32 for value in values):
            return Verdict(False, "dtype", "the kernels are for float32", "call model.float() first")
        if node.kwargs:
            return Verdict(False, "argument", f"{', '.join(node.kwargs)} cannot be kept")
        return SUPPORTED

    def build(self, island: Island, options: Options) -> Artifact:
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
        options: Options,
    ) -> Runner:
        """Return a function that computes the steps one after another."""
        if artifact.properties.get("format") != FORMAT:
            raise TargetError("the island has another format", where=self.name, remedy="compile again")
        assert isinstance(options, NumpyOptions)
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
                    values[call["name"]] = KERNELS[call["op"]](*taken)
            # A copy: what comes out of an island shares its memory with nobody.
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
