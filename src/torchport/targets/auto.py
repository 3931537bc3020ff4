"""The target `auto`: not a device, but a choice among the available targets, made by measuring.

`torchport.compile` makes the choice. A model is compiled for `auto` itself only if eager torch runs it best,
so `auto` supports no op.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import TensorSpec, Verdict
from torchport.targets.target import (
    Artifact,
    Availability,
    Decompositions,
    Island,
    Options,
    Runner,
    Target,
    choice,
    number,
)
from torchport.torch_private import OpOverload

OBJECTIVES = ("latency", "throughput", "memory")


@dataclass(frozen=True)
class AutoOptions(Options):
    """How the engine is chosen. The options that every target has are passed on to the engines.

    Args:
        objective: the measure to optimize: the time of a call (`latency`), the time of many concurrent calls
            (`throughput`), or the memory used (`memory`).
        budget_s: how many seconds all trials may take together; each engine gets an equal share of the time
            that is left.
        engines: the targets to try; by default, all that are available.
        memory_mb: how many megabytes the process of a trial may use; 0 means a share of the free memory.
        serve_eager_while_building: whether the compiled model is returned at once, with eager torch running
            it until the choice is made.
    """

    objective: str = choice("latency", OBJECTIVES)
    budget_s: int = number(300, least=1)
    engines: tuple[str, ...] = ()
    memory_mb: int = number(0, least=0)
    serve_eager_while_building: bool = False


class AutoTarget(Target[AutoOptions]):
    """The fastest engine of this machine, for each model."""

    name = "auto"
    description = "the fastest of the other targets and eager torch on this machine, by measuring each"
    options_type = AutoOptions
    device_types = frozenset({"cpu", "cuda"})
    is_timed = False

    def availability(self) -> Availability:
        """Return that it is available: eager torch always is."""
        return Availability(True, "the fastest of the other targets, and eager torch")

    def version(self) -> str:
        """Return an empty version: it has no library."""
        return ""

    def decompositions(self) -> Decompositions:
        """Return no decompositions: eager torch has a kernel for every op."""
        return {}

    def kept_composites(self) -> Collection[OpOverload]:
        """Keep the composites for which torch chooses a kernel at run time."""
        return (torch.ops.aten.scaled_dot_product_attention.default, torch.ops.aten.linear.default)

    def verdict(self, node: fx.Node, options: AutoOptions) -> Verdict:
        """Leave every op to eager torch."""
        return Verdict(
            False,
            "slower",
            "of all engines that were tried, eager torch is the best for this model",
            "name a target to run it there anyway",
        )

    def build(self, island: Island, options: AutoOptions) -> Artifact:
        """Raise an error: it supports no op."""
        raise _refusal()

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: AutoOptions,
    ) -> Runner:
        """Raise an error: it supports no op."""
        raise _refusal()


def _refusal() -> TargetError:
    return TargetError("auto runs no islands of its own", where="auto", remedy="name a target")
