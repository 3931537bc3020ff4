"""The host as a target: takes whatever its format can write down."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from torchport.records import SUPPORTED, OpTime, TensorSpec, Verdict
from torchport.targets.decompositions import core_decompositions
from torchport.targets.graph_json import why_not_encoded
from torchport.targets.host.build import build
from torchport.targets.host.load import FORMAT, load, weight_places
from torchport.targets.host.profile import eager_op_times
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Options, Runner, Target
from torchport.torch_private import OpOverload


class HostTarget(Target):
    """Runs islands with eager torch on the CPU."""

    name = "host"
    description = "eager torch on this machine's CPU; for testing every stage without a device"
    build_format = FORMAT
    is_timed = False

    def availability(self) -> Availability:
        """The host is always there."""
        return Availability(True, "eager torch on the CPU", version=torch.__version__, devices=("CPU",))

    def version(self) -> str:
        """Eager torch's version is that of torch, which every cache key holds already."""
        return ""

    def decompositions(self) -> Decompositions:
        """Core ATen, so that the host sees what a device with core ATen lowerings would."""
        return core_decompositions()

    def verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Take every functional op whose arguments can be written as JSON."""
        if not isinstance(node.target, OpOverload):
            return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return Verdict(False, "random", "random ops draw from torch's own generator")
        problem = why_not_encoded(node)
        return Verdict(False, "argument", problem) if problem else SUPPORTED

    def takes_open_sizes(self, options: Options) -> bool:
        """Eager torch takes any."""
        return True

    def open_verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Take every op: eager torch asks for no sizes beforehand."""
        return SUPPORTED

    def build(self, island: Island, options: Options) -> Artifact:
        """Write the island down."""
        return build(island)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where the safetensors part has its tensors."""
        return weight_places(artifact)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Options,
    ) -> Runner:
        """Return a function that calls the ops one after another."""
        return load(artifact)

    def op_times(
        self, island: Island, options: Options, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return what torch's profiler says."""
        return eager_op_times(island.graph_module, arguments)
