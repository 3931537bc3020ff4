"""OpenVINO as a target: verdicts, build and load."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from torchport.errors import TargetError, nearest
from torchport.records import OpTime, TensorSpec, Verdict
from torchport.targets.decompositions import core_decompositions, find_op, is_composite
from torchport.targets.openvino import verdicts
from torchport.targets.openvino.format import FORMAT
from torchport.targets.openvino.library import (
    REMEDY,
    check_config,
    check_device,
    core,
    installed_version,
)
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.options import PRECISIONS, OpenVinoOptions, check_file_options
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Options, Runner, Target
from torchport.targets.value_ranges import annotate
from torchport.torch_private import OpOverload


class OpenVinoTarget(Target):
    """Intel's OpenVINO: CPUs (Intel and ARM), Intel GPUs and NPUs."""

    name = "openvino"
    description = "OpenVINO on CPUs, Intel GPUs and NPUs"
    options_type = OpenVinoOptions
    build_format = FORMAT

    def availability(self) -> Availability:
        """Say which OpenVINO is installed and which devices it sees."""
        version = installed_version()
        if not version:
            return Availability(False, "OpenVINO is not installed", REMEDY)
        try:
            devices = tuple(core().available_devices)
        except Exception as error:  # noqa: BLE001  # a broken driver may raise anything
            return Availability(False, f"OpenVINO does not start: {error}", REMEDY, version)
        return Availability(True, f"OpenVINO {version}", version=version, devices=devices)

    def check_ready(self, options: Options) -> None:
        """Refuse a missing library, an absent device, or a precision that it cannot compute in."""
        assert isinstance(options, OpenVinoOptions)
        check_device(options.device, options.precision)

    def version(self) -> str:
        """Return OpenVINO's version."""
        return installed_version()

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
        """Say whether OpenVINO computes this node as torch does."""
        return verdicts.verdict(node)

    def is_low_precision(self, options: Options) -> bool:
        """Whether a lower precision was asked for."""
        assert isinstance(options, OpenVinoOptions)
        return options.precision != "float32"

    def build(self, island: Island, options: Options) -> Artifact:
        """Convert the island to OpenVINO's portable form."""
        from torchport.targets.openvino.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Options,
    ) -> Runner:
        """Take the compiled form if it was made for this device, else compile the portable one."""
        from torchport.targets.openvino.load import load

        assert isinstance(options, OpenVinoOptions)
        return load(artifact, inputs, outputs, options)

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return OpenVINO's intermediate representation, which its own tools open."""
        from torchport.targets.openvino.load import parts_of

        xml, weights = parts_of(artifact)
        return {"model.xml": xml.tobytes(), "model.bin": weights.tobytes()}

    def embed(self, artifact: Artifact, runner: Runner, options: Options) -> Artifact:
        """Add OpenVINO's own compiled form."""
        from torchport.targets.openvino.load import embed

        assert isinstance(options, OpenVinoOptions)
        return embed(artifact, runner, options)

    def op_times(
        self, island: Island, options: Options, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return what OpenVINO's counters say."""
        from torchport.targets.openvino.profile import op_times

        assert isinstance(options, OpenVinoOptions)
        return op_times(island, options, arguments)

    def make_options(self, given: object) -> Options:
        """Build the options; refuses a precision that there is not, or a property that OpenVINO refuses."""
        options = super().make_options(given)  # type: ignore[arg-type]
        assert isinstance(options, OpenVinoOptions)
        if options.precision not in PRECISIONS:
            raise TargetError(
                f"no precision {options.precision!r}",
                where=self.name,
                remedy=nearest(options.precision, PRECISIONS),
            )
        if options.config and installed_version():
            check_config(options.device, options.config)
        return options

    def options_from_file(self, given: Mapping[str, object]) -> Options:
        """Build the options that a file asks for; refuses those that do more than choose how to compute."""
        check_file_options(given)
        return self.make_options(given)


@functools.cache
def _decompositions() -> Decompositions:
    return {op: how for op, how in core_decompositions().items() if str(op) not in RULES}


@functools.cache
def _kept_composites() -> tuple[OpOverload, ...]:
    return tuple(op for op in map(find_op, RULES) if op is not None and is_composite(op))


def _is_outside(node: fx.Node) -> bool:
    """Whether a node's value surely comes from outside the device."""
    if node.op == "placeholder":
        return True
    return (
        node.op == "call_function" and isinstance(node.target, OpOverload) and str(node.target) not in RULES
    )
