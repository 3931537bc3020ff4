"""torch's inductor as a target: verdicts, build and load."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Collection, Sequence

import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import SUPPORTED, OpTime, TensorSpec, Verdict
from torchport.targets.decompositions import core_decompositions
from torchport.targets.graph_json import why_not_encoded
from torchport.targets.inductor.format import FORMAT
from torchport.targets.inductor.options import InductorOptions
from torchport.targets.inductor.safe_ops import why_unsafe
from torchport.targets.node_checks import is_random, tensors_of
from torchport.targets.target import Artifact, Availability, Decompositions, Island, Runner, Target
from torchport.torch_private import OpOverload

_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_SHIFTS = frozenset("bitwise_left_shift bitwise_right_shift __lshift__ __rshift__".split())
_SUMS = frozenset("add sub rsub mul neg".split())
_NARROW = (torch.int8, torch.int16, torch.uint8)
# Functions that inductor expands into a formula less accurate than torch's own kernel.
_INACCURATE = {
    "acosh": "squares its operand, which overflows",
    "remainder": "subtracts a rounded product, which loses all digits for large quotients",
    "floor_divide": "rounds down a quotient that is already rounded, as for 1.0 and 0.1",
}
REMEDY = "install a C++ compiler (g++), or set CXX to one"


class InductorTarget(Target[InductorOptions]):
    """torch's own compiler: C++ on CPUs, Triton on NVIDIA GPUs."""

    name = "inductor"
    description = "torch's own compiler, run ahead of time, for CPUs and NVIDIA GPUs"
    options_type = InductorOptions
    build_format = FORMAT
    device_types = frozenset({"cpu", "cuda"})

    def availability(self) -> Availability:
        """Report whether a C++ compiler or a GPU is available."""
        devices = tuple(self._devices())
        if not devices:
            return Availability(False, "no C++ compiler found", REMEDY, torch.__version__)
        return Availability(True, f"torch {torch.__version__}", version=torch.__version__, devices=devices)

    def _devices(self) -> list[str]:
        gpu = torch.cuda.is_available() and importlib.util.find_spec("triton") is not None
        return [*(["CPU"] if _compiler() else []), *(["CUDA"] if gpu else [])]

    def check_ready(self, options: InductorOptions) -> None:
        """Refuse a machine without a C++ compiler or GPU."""
        found = self.availability()
        if not found.ok:
            raise TargetError(found.detail, where=self.name, remedy=found.remedy)

    def version(self) -> str:
        """Return an empty string: inductor's version is torch's, which every cache key already includes."""
        return ""

    def decompositions(self) -> Decompositions:
        """Return those to core ATen, so files hold few distinct ops; inductor decomposes the rest itself."""
        return core_decompositions()

    def kept_composites(self) -> Collection[OpOverload]:
        """Keep attention whole: which kernel it uses depends on the device that loads it."""
        return (_ATTENTION,)

    def verdict(self, node: fx.Node, options: InductorOptions) -> Verdict:
        """Accept ops that a file can hold, that cannot end the process, and that match torch's accuracy."""
        if not isinstance(node.target, OpOverload):
            return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
        if is_random(node):
            return Verdict(False, "random", f"{node.target} draws random numbers from torch's generator")
        problem = why_not_encoded(node)
        if problem:
            return Verdict(False, "argument", problem)
        checks = (_check_tensors, _check_integers, _check_values, _check_floats)
        return next(filter(None, (check(node) for check in checks)), SUPPORTED)

    def build(self, island: Island, options: InductorOptions) -> Artifact:
        """Serialize the island; it is compiled when it is loaded."""
        from torchport.targets.inductor.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: InductorOptions,
    ) -> Runner:
        """Use the compiled form if this user made it for this machine, else compile the graph."""
        from torchport.targets.inductor.load import load

        return load(artifact, inputs, outputs, options)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where the graph's weights lie in the payload."""
        from torchport.targets.inductor.load import weight_places

        return weight_places(artifact)

    def embed(self, artifact: Artifact, runner: Runner, options: InductorOptions) -> Artifact:
        """Add the compiled form, sealed."""
        from torchport.targets.inductor.load import embed

        return embed(artifact, runner, options)

    def op_times(
        self, island: Island, options: InductorOptions, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return the times of inductor's kernels, as torch's profiler measures them."""
        from torchport.targets.inductor.profile import op_times

        return op_times(island, options, arguments)


def _compiler() -> str | None:
    """Return the C++ compiler that inductor would use; asking inductor itself would import dynamo."""
    return shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


def _check_tensors(node: fx.Node) -> Verdict | None:
    found = False
    for tensor in tensors_of(node):
        found = True
        if tensor.layout is not torch.strided:
            return Verdict(False, "argument", f"a tensor has the layout {tensor.layout}")
        if tensor.is_complex() or tensor.dtype.itemsize == 0:
            return Verdict(False, "dtype", f"{node.target} on {tensor.dtype} stays on the host")
        if tensor.numel() == 0:
            return Verdict(False, "shape", "a tensor is empty")
    return None if found else Verdict(False, "not_a_tensor", f"{node.target} has no tensors")


def _check_integers(node: fx.Node) -> Verdict | None:
    """Refuse integer ops undefined or wider in C++: shifts, sums of narrow integers."""
    assert isinstance(node.target, OpOverload)
    name = node.target.overloadpacket.__name__
    value = node.meta.get("val")
    if name in _SHIFTS:
        return Verdict(False, "argument", "shifts by negative or large amounts differ from torch's")
    if name in _SUMS and isinstance(value, torch.Tensor) and value.dtype in _NARROW:
        return Verdict(
            False, "dtype", f"{node.target} in {value.dtype} wraps around, but not when a comparison follows"
        )
    return None


def _check_values(node: fx.Node) -> Verdict | None:
    """Refuse ops that end the process or read out of bounds for some values."""
    reason = why_unsafe(node)
    return Verdict(False, "argument", reason) if reason else None


def _check_floats(node: fx.Node) -> Verdict | None:
    """Refuse float functions that inductor expands with errors greater than rounding."""
    assert isinstance(node.target, OpOverload)
    name = node.target.overloadpacket.__name__
    value = node.meta.get("val")
    if name == "div" and node.kwargs.get("rounding_mode") == "floor":
        name = "floor_divide"
    if name in _INACCURATE and isinstance(value, torch.Tensor) and value.is_floating_point():
        return Verdict(False, "argument", f"{node.target} as inductor expands it {_INACCURATE[name]}")
    return None
