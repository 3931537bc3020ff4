"""ttnn as a target: verdicts, build, load and scripts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from torchport.errors import TargetError, nearest
from torchport.records import TensorSpec, Verdict
from torchport.targets.artifact_properties import refuse_property
from torchport.targets.decompositions import core_decompositions, find_op, is_composite
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Options, Runner, Target
from torchport.targets.ttnn.format import FORMAT, unpack
from torchport.targets.ttnn.library import has_device, installed_version
from torchport.targets.ttnn.options import DTYPES, MEMORIES, TtnnOptions
from torchport.targets.ttnn.vocabulary import FIDELITIES
from torchport.targets.value_ranges import annotate
from torchport.torch_private import FakeTensor, OpOverload

_MOST_DEVICES = 1024
_SMALL = 4096  # elements of an integer weight that lowerings may look at


class TtnnTarget(Target):
    """Tenstorrent's chips, by their library ttnn; without one, a simulator of it."""

    name = "ttnn"
    description = "Tenstorrent's chips, by ttnn; simulated where there is none"
    options_type = TtnnOptions
    build_format = FORMAT
    is_timed = False

    def availability(self) -> Availability:
        """Say whether a chip is there; the simulator always is."""
        version = installed_version()
        if has_device():
            return Availability(True, f"ttnn {version}", version=version, devices=("chip",))
        return Availability(
            True, "no chip here: programs are simulated", version=version, devices=("simulator",)
        )

    def version(self) -> str:
        """Programs are written for one version of the library, whether it is installed or not."""
        return "0.81.1"

    def decompositions(self) -> Decompositions:
        """Take apart what has no lowering; keep what has one."""
        return _decompositions()

    def kept_composites(self) -> Collection[OpOverload]:
        """Keep the composite ops that have a lowering."""
        return _kept_composites()

    def prepare(self, graph_module: fx.GraphModule) -> None:
        """Bound the integers of the whole graph, and note the small weights that lowerings look at."""
        from torchport.targets.ttnn.verdicts import WEIGHTS

        annotate(graph_module, _is_outside)
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                tensor = getattr(graph_module, str(node.target), None)
                if isinstance(tensor, torch.Tensor) and _is_readable(tensor):
                    node.meta[WEIGHTS] = tensor

    def verdict(self, node: fx.Node, options: Options) -> Verdict:
        """Say whether a program can compute this node as torch does."""
        from torchport.targets.ttnn.verdicts import verdict

        assert isinstance(options, TtnnOptions)
        return verdict(node, options)

    def is_low_precision(self, options: Options) -> bool:
        """Whether floats are held in bfloat16 or less."""
        assert isinstance(options, TtnnOptions)
        return options.dtype != "float32"

    def build(self, island: Island, options: Options) -> Artifact:
        """Write the island as a program."""
        from torchport.targets.ttnn.build import build

        assert isinstance(options, TtnnOptions)
        return build(island, options)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Options,
    ) -> Runner:
        """Load the program on the chip, or on the simulator."""
        from torchport.targets.ttnn.load import load

        assert isinstance(options, TtnnOptions)
        return load(artifact, inputs, outputs, options)

    def emit(
        self,
        artifact: Artifact,
        examples: Sequence[torch.Tensor],
        options: Options,
        title: str,
        stem: str,
        *,
        takes: Sequence[int],
        gives: Sequence[int],
    ) -> dict[str, bytes]:
        """Write the program as a script and a file of weights."""
        from torchport.targets.ttnn.emit import emit

        assert isinstance(options, TtnnOptions)
        program, weights = unpack(artifact)
        program = dataclasses.replace(
            program,
            inputs=tuple(program.inputs[place] for place in takes),
            outputs=tuple(program.outputs[place] for place in gives),
        )
        return emit(program, weights, examples, title=title, stem=stem, device_id=options.device_id)

    def simulated_seconds(self, artifact: Artifact, options: Options) -> float | None:
        """Return the estimate of a program's time, unless it runs on a chip."""
        assert isinstance(options, TtnnOptions)
        if has_device() and not options.simulate:
            return None
        seconds = artifact.properties.get("estimated_seconds")
        if not isinstance(seconds, float):
            raise refuse_property(self.name, "estimated_seconds", seconds)
        return seconds

    def make_options(self, given: object) -> Options:
        """Build the options; refuses a dtype or fidelity that there is not."""
        options = super().make_options(given)  # type: ignore[arg-type]
        assert isinstance(options, TtnnOptions)
        chosen = (
            (options.dtype, DTYPES),
            (options.math_fidelity, FIDELITIES),
            (options.memory, MEMORIES),
        )
        for value, choices in chosen:
            if value not in choices:
                raise TargetError(
                    f"no such choice: {value!r}", where=self.name, remedy=nearest(value, choices)
                )
        if not 0 <= options.device_id < _MOST_DEVICES:
            raise TargetError(f"no chip has the number {options.device_id}", where=self.name)
        return options


def _is_readable(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.numel() > _SMALL:
        return False
    return tensor.dim() == 0 or not tensor.is_floating_point()


def _rules() -> Mapping[str, object]:
    """Return the lowerings; whoever only loads a program does without them."""
    from torchport.targets.ttnn.ops import RULES

    return RULES


@functools.cache
def _decompositions() -> Decompositions:
    rules = _rules()
    return {op: how for op, how in core_decompositions().items() if str(op) not in rules}


@functools.cache
def _kept_composites() -> tuple[OpOverload, ...]:
    return tuple(op for op in map(find_op, _rules()) if op is not None and is_composite(op))


def _is_outside(node: fx.Node) -> bool:
    """Whether a node's value surely comes from outside the device."""
    if node.op == "placeholder":
        return True
    return (
        node.op == "call_function"
        and isinstance(node.target, OpOverload)
        and str(node.target) not in _rules()
    )
