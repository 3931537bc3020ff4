"""onnxruntime as a target: verdicts, build and load."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from torch import fx

from torchport.records import TensorSpec, Verdict
from torchport.targets.decompositions import core_decompositions, find_op, is_composite
from torchport.targets.onnxruntime.format import FORMAT
from torchport.targets.onnxruntime.library import (
    REMEDY,
    check_provider,
    installed_version,
    library,
    providers,
)
from torchport.targets.onnxruntime.options import OnnxRuntimeOptions, check_file_options, check_threads
from torchport.targets.onnxruntime.rules import RULES
from torchport.targets.openvino.verdicts import verdict
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Options, Runner, Target
from torchport.targets.value_ranges import annotate
from torchport.torch_private import OpOverload


class OnnxRuntimeTarget(Target):
    """Microsoft's onnxruntime: CPUs, and what else its build has execution providers for."""

    name = "onnxruntime"
    description = "onnxruntime on CPUs, and on the devices that its build has execution providers for"
    options_type = OnnxRuntimeOptions
    build_format = FORMAT

    def availability(self) -> Availability:
        """Say which onnxruntime is installed and which execution providers it has."""
        missing = [name for name in ("onnxruntime", "onnx", "onnxscript") if not installed_version(name)]
        if missing:
            return Availability(False, f"{' and '.join(missing)} not installed", REMEDY)
        version = installed_version()
        try:
            return Availability(True, f"onnxruntime {version}", version=version, devices=providers())
        except Exception as error:  # noqa: BLE001  # a broken installation may raise anything
            return Availability(False, f"onnxruntime does not start: {error}", REMEDY, version)

    def check_ready(self, options: Options) -> None:
        """Refuse a missing library, or an execution provider that this build has not."""
        assert isinstance(options, OnnxRuntimeOptions)
        for name in ("onnxruntime", "onnx", "onnxscript"):
            library(name)
        check_provider(options.provider)

    def version(self) -> str:
        """Return the versions of onnxruntime and of the exporter."""
        return f"{installed_version()}, onnxscript {installed_version('onnxscript')}"

    def decompositions(self) -> Decompositions:
        """Take apart what has no rule; keep what has one."""
        return _decompositions()

    def kept_composites(self) -> Collection[OpOverload]:
        """Keep the composite ops that have a rule."""
        return _kept_composites()

    def prepare(self, graph_module: fx.GraphModule) -> None:
        """Bound the integers of the whole graph."""
        annotate(graph_module, _is_outside)

    def verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Say whether onnxruntime computes this node as torch does."""
        return verdict(node, RULES, "onnxruntime")

    def build(self, island: Island, options: Options) -> Artifact:
        """Convert the island to ONNX."""
        from torchport.targets.onnxruntime.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Options,
    ) -> Runner:
        """Have onnxruntime read the island."""
        from torchport.targets.onnxruntime.load import load

        assert isinstance(options, OnnxRuntimeOptions)
        return load(artifact, inputs, outputs, options)

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return the ONNX model, which many tools open."""
        return {"model.onnx": artifact.payload.tobytes()}

    def make_options(self, given: Mapping[str, object] | None) -> Options:
        """Build the options; refuses a number of threads that no machine has."""
        options = super().make_options(given)
        assert isinstance(options, OnnxRuntimeOptions)
        check_threads(options)
        return options

    def options_from_file(self, given: Mapping[str, object]) -> Options:
        """Build the options that a file asks for; refuses providers that reach outside of an island."""
        check_file_options(given)
        return self.make_options(given)


@functools.cache
def _decompositions() -> Decompositions:
    return {op: how for op, how in core_decompositions().items() if str(op) not in RULES}


@functools.cache
def _kept_composites() -> tuple[OpOverload, ...]:
    return tuple(op for op in map(find_op, RULES) if op is not None and is_composite(op))


def _is_outside(node: fx.Node) -> bool:
    """Whether a node's value surely comes from outside the engine."""
    if node.op == "placeholder":
        return True
    return (
        node.op == "call_function" and isinstance(node.target, OpOverload) and str(node.target) not in RULES
    )
