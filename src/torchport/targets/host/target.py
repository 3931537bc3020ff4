"""The host as a target: supports every op that its format can store."""

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
from torchport.targets.node_checks import is_random
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Options, Runner, Target
from torchport.torch_private import OpOverload


class HostTarget(Target):
    """Runs islands with eager torch on the CPU."""

    name = "host"
    description = "eager torch on this machine's CPU; for testing every stage without a device"
    build_format = FORMAT
    is_timed = False

    def availability(self) -> Availability:
        """Return that the host is always available."""
        return Availability(True, "eager torch on the CPU", version=torch.__version__, devices=("CPU",))

    def version(self) -> str:
        """Return an empty version: every cache key includes torch's version already."""
        return ""

    def decompositions(self) -> Decompositions:
        """Return decompositions to core ATen, so that the host sees the same ops as a core ATen device."""
        return core_decompositions()

    def verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Take every functional op whose arguments can be written as JSON."""
        if not isinstance(node.target, OpOverload):
            return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
        if is_random(node):
            return Verdict(False, "random", "random ops draw from torch's own generator")
        problem = why_not_encoded(node)
        return Verdict(False, "argument", problem) if problem else SUPPORTED

    def takes_open_sizes(self, options: Options) -> bool:
        """Return that open sizes are supported: eager torch takes any."""
        return True

    def open_verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Support every op: eager torch does not need sizes in advance."""
        return SUPPORTED

    def build(self, island: Island, options: Options) -> Artifact:
        """Serialize the island."""
        return build(island)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return the start and length of each weight in the safetensors part."""
        return weight_places(artifact)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Options,
    ) -> Runner:
        """Return a function that calls the ops one after another."""
        return load(artifact, outputs)

    def op_times(
        self, island: Island, options: Options, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return each op's time from torch's profiler."""
        return eager_op_times(island.graph_module, arguments)
