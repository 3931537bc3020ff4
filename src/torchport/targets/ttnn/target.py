"""ttnn as a target: verdicts, build, load and scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import fx

from torchport.records import TensorSpec, Verdict
from torchport.targets.artifact_properties import read_input_ranges, refuse_property
from torchport.targets.rule_target import RuleTarget
from torchport.targets.target import Artifact, Availability, Decompositions, Island, OwnWeight, Runner
from torchport.targets.ttnn.library import has_device, installed_version
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.ttnn_program import FORMAT, DeviceTensor
from torchport.torch_private import FakeTensor

if TYPE_CHECKING:
    from torchport.targets.ttnn.rules import Rule

_SMALL = 4096  # the most elements of an integer weight whose values lowerings may read


class TtnnTarget(RuleTarget[TtnnOptions, "Rule"]):
    """Tenstorrent chips, through their library ttnn; without a chip, a simulator of ttnn."""

    name = "ttnn"
    description = "Tenstorrent chips, through ttnn; simulated where there is none"
    options_type = TtnnOptions
    build_format = FORMAT
    recomputes_in_training = True
    is_timed = False
    exact_integers = (-(2**31) + 1, 2**31 - 1)

    def availability(self) -> Availability:
        """Report whether there is a chip; the simulator is always available."""
        version = installed_version()
        if has_device():
            return Availability(True, f"ttnn {version}", version=version, devices=("chip",))
        return Availability(
            True, "no chip here: programs are simulated", version=version, devices=("simulator",)
        )

    def version(self) -> str:
        """Return the version of ttnn that programs are written for, whether it is installed or not."""
        return "0.81.1"

    def rules(self) -> Mapping[str, Rule]:
        """Return the lowerings, imported here because loading a program does not need them."""
        from torchport.targets.ttnn.ops import RULES

        return RULES

    def training_decompositions(self) -> Decompositions:
        """Decompose convolutions and their gradients into products: ttnn's need constant weights."""
        from torchport.targets.ttnn.training.decompositions import training_decompositions

        return {**self.decompositions(), **training_decompositions()}

    def prepare(self, graph_module: fx.GraphModule) -> None:
        """Bound the integers of the whole graph, and record the small weights whose values lowerings read."""
        from torchport.targets.ttnn.float32_values import mark_deciding_values
        from torchport.targets.ttnn.verdicts import WEIGHTS

        super().prepare(graph_module)
        mark_deciding_values(graph_module.graph)
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                tensor = getattr(graph_module, str(node.target), None)
                if isinstance(tensor, torch.Tensor) and _is_readable(tensor):
                    node.meta[WEIGHTS] = tensor

    def check(self, node: fx.Node, rule: Rule, options: TtnnOptions) -> Verdict | None:
        """Try the op's lowering without values, and return its refusal, if any."""
        from torchport.targets.ttnn.verdicts import check

        return check(node, rule, options)

    def is_low_precision(self, options: TtnnOptions) -> bool:
        """Whether floats are stored in bfloat16 or less."""
        return options.dtype != "float32"

    def build(self, island: Island, options: TtnnOptions) -> Artifact:
        """Write the island as a program."""
        from torchport.targets.ttnn.write import build

        return build(island, options)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: TtnnOptions,
    ) -> Runner:
        """Load the program on the chip, or on the simulator."""
        from torchport.targets.ttnn.load import load

        return load(artifact, inputs, outputs, options)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where the tensors of the payload's safetensors part lie."""
        from torchport.targets.ttnn.format import weight_places

        return weight_places(artifact)

    def emit(
        self,
        artifact: Artifact,
        examples: Sequence[torch.Tensor],
        options: TtnnOptions,
        title: str,
        stem: str,
        *,
        takes: Sequence[int],
        gives: Sequence[int],
    ) -> dict[str, bytes]:
        """Write the program as a script and a file of weights."""
        from torchport.targets.ttnn.emit import emit
        from torchport.targets.ttnn.format import unpack

        program, weights = unpack(artifact)
        specs = [TensorSpec(crossing.host_shape, crossing.host_dtype) for crossing in program.inputs]
        bounds = read_input_ranges(artifact.properties, specs, self.name)
        ranges = {program.inputs[place].name: (low, high) for place, low, high in bounds}
        program = dataclasses.replace(
            program,
            inputs=tuple(program.inputs[place] for place in takes),
            outputs=tuple(program.outputs[place] for place in gives),
        )
        return emit(
            program, weights, examples, title=title, stem=stem, device_id=options.device_id, ranges=ranges
        )

    def own_weight(self, weight: torch.Tensor, bits: int) -> OwnWeight | None:
        """Round a weight to block floats along its outputs, since products store it transposed."""
        from torchport.targets.ttnn.block_floats import BY_BITS, block_rounded

        dtype = BY_BITS.get(bits)
        if dtype is None:
            return None
        held = block_rounded(weight.detach().t().contiguous(), dtype)
        size = DeviceTensor(tuple(held.shape), dtype, "tile").bytes
        return OwnWeight(dtype, held.t().contiguous().to(weight.dtype), size)

    def simulated_seconds(self, artifact: Artifact, options: TtnnOptions) -> float | None:
        """Return a program's estimated time, or None if it runs on a chip."""
        if has_device() and not options.simulate:
            return None
        seconds = artifact.properties.get("estimated_seconds")
        if not isinstance(seconds, float):
            raise refuse_property(self.name, "estimated_seconds", seconds)
        return seconds


def _is_readable(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.numel() > _SMALL:
        return False
    return tensor.dim() == 0 or not tensor.is_floating_point()
