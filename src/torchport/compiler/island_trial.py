"""Tries built islands against eager torch on the example inputs, and finds the ops at fault."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from torchport.capture import source_line
from torchport.compiler.outline import spec_of
from torchport.errors import CompileError, one_line
from torchport.targets import Artifact, Island, Options, Target
from torchport.targets.node_by_node import NodeByNode
from torchport.targets.node_checks import tensors_of
from torchport.verification import HALVES, coarsest_step, compare_tensors, half_difference, island_tolerance

_ROUNDING = "fake_quantize"
_ROUNDING_SHARE = 0.5  # int8 kernels may differ by this share of the change that rounding to int8 makes
# Or be this many times as far from the float results as the simulation: by chance, one is always further off.
_NO_FURTHER = 1.2
_AS_CLOSE = 2.0  # results may be this many times as far from float64 as eager torch is
_PRODUCTS = frozenset(f"aten.{name}.default" for name in ("mm", "addmm", "bmm", "linear", "convolution"))


class Reference(NodeByNode):
    """Runs the whole graph once with eager torch, and keeps the values that islands are tried on."""

    def __init__(self, graph_module: fx.GraphModule, wanted: set[fx.Node]) -> None:
        super().__init__(graph_module)
        self.wanted = wanted
        self.values: dict[fx.Node, object] = {}
        self.node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and keep its value if it is wanted."""
        self.node = n
        value = super().run_node(n)
        if n in self.wanted:
            self.values[n] = value
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Call an op; a bfloat16 matrix product or convolution is computed in float32 and rounded.

        torch's own kernels do the same, but a hundred times slower on a processor without bfloat16 support.
        """
        if str(target) not in _PRODUCTS or not any(map(_is_bfloat16_on_cpu, args)):
            return super().call_function(target, args, kwargs)
        wide = tuple(_widened(argument) for argument in args)
        return super().call_function(target, wide, kwargs).to(torch.bfloat16)  # type: ignore[arg-type]  # fx's own union


def reference_values(
    graph_module: fx.GraphModule, leaves: Sequence[torch.Tensor], wanted: set[fx.Node]
) -> dict[fx.Node, object]:
    """Return what eager torch computes for the wanted nodes; torch's random state is preserved.

    Raises:
        CompileError: eager torch raises an error, such as for an index out of range.
    """
    reference = Reference(graph_module, wanted)
    # The model's own ops may draw random numbers on an accelerator, though no island does.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        try:
            reference.run(*leaves)
        except Exception as error:
            raise CompileError(
                f"the model raises {one_line(error)}",
                where="" if reference.node is None else source_line(reference.node),
                remedy="call the model on these inputs without torchport, and fix it or the inputs first",
            ) from error
    return reference.values


class _Wider(NodeByNode):
    """Runs an island with eager torch, with the narrow dtypes replaced by a wider one."""

    def __init__(
        self, graph_module: fx.GraphModule, narrow: Collection[torch.dtype], wide: torch.dtype
    ) -> None:
        super().__init__(graph_module)
        self.narrow, self.wide = narrow, wide

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and widen its results."""
        return _widened(super().run_node(n), self.narrow, self.wide)

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[Any, Any]:
        """Return a node's arguments, with narrow dtypes among its keywords widened."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return args, {key: self.wide if value in self.narrow else value for key, value in kwargs.items()}


class _Unrounded(NodeByNode):
    """Runs an island with eager torch, without rounding tensors to eight bits."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Call an op; fake quantization only clamps its tensor to the quantization range."""
        if not str(target).startswith("aten.fake_quantize_per_tensor_affine"):
            return super().call_function(target, args, kwargs)
        source, scale, zero_point, low, high = args[:5]
        cut = source.clamp((low - zero_point) * scale, (high - zero_point) * scale)
        return (cut, torch.ones_like(cut, dtype=torch.bool)) if "cachemask" in str(target) else cut


def _is_bfloat16_on_cpu(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 and value.is_cpu


def _widened(
    value: object, narrow: Collection[torch.dtype] = HALVES, wide: torch.dtype = torch.float32
) -> object:
    if isinstance(value, (tuple, list)):
        return type(value)([_widened(item, narrow, wide) for item in value])
    return value.to(wide) if isinstance(value, torch.Tensor) and value.dtype in narrow else value


def island_difference(
    island: Island,
    arguments: Sequence[torch.Tensor],
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    *,
    low_precision: bool,
    whole: bool = False,
) -> str:
    """Describe how an island's results differ from eager torch's; empty if they are close enough.

    With half-precision tensors, they must be about as close to the float32 results as eager's are, see
    `half_difference`; others are compared with eager's. If they are not close, eager's own error is checked:
    a value that is 0 up to rounding, such as a bias gradient before a batch norm, may be any small number.

    Args:
        island: what was built.
        arguments: what it was run on.
        actual, expected, low_precision, whole: as in `difference`.
    """
    nodes = island.graph_module.graph.nodes
    # A value halfway between two int8 steps may be rounded to either: kernels sum in different orders.
    is_quantized = any(_ROUNDING in str(node.target) for node in nodes)
    step = coarsest_step(tensor.dtype for node in nodes for tensor in tensors_of(node))
    if low_precision or is_quantized or not step:
        found = difference(actual, expected, low_precision=low_precision or is_quantized, whole=whole)
        if found and whole and is_quantized:
            return "" if _is_rounding(island, arguments, actual, expected) else found
        if found and whole and not low_precision and _is_as_close(island, arguments, actual, expected):
            return ""
        return found
    with torch.no_grad():
        wide = _Wider(island.graph_module, HALVES, torch.float32).run(*arguments)
    ops = sum(node.op == "call_function" for node in nodes)
    for index, tensors in enumerate(zip(actual, expected, wide, strict=True)):
        ours, theirs, _ = tensors
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {index} is {spec_of(ours)} instead of {spec_of(theirs)}"
        problem = half_difference(*tensors, step=step, ops=ops)
        if problem:
            return f"output {index} {problem}"
    return ""


def _is_as_close(
    island: Island,
    arguments: Sequence[torch.Tensor],
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> bool:
    """Whether results are about as close to those of float64 as eager torch's."""
    try:
        with torch.no_grad():
            exact = _Wider(island.graph_module, (torch.float32,), torch.float64).run(*arguments)
    except (RuntimeError, NotImplementedError, TypeError):  # no such kernel, or not enough memory
        return False
    for ours, theirs, right in zip(actual, expected, exact, strict=True):
        if not difference([ours], [theirs], low_precision=False, whole=True):
            continue
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype or not theirs.is_floating_point():
            return False
        found, most = ((each.double() - right).norm() for each in (ours, theirs))
        if not found <= _AS_CLOSE * most < math.inf:  # neither is NaN
            return False
    return True


def _is_rounding(
    island: Island,
    arguments: Sequence[torch.Tensor],
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> bool:
    """Whether results differ by less than half of what rounding to int8 changes, or are no further off.

    Over many layers, the few values that are rounded to the other step add up, more so in a model with coarse
    int8 scales: no two implementations agree there. And an engine may skip a rounding, as OpenVINO does
    between a convolution and the sum that it is fused with: its results then differ from the simulation's,
    but are no further from those without rounding.
    """
    with torch.no_grad():
        unrounded = _Unrounded(island.graph_module).run(*arguments)
    for ours, theirs, floats in zip(actual, expected, unrounded, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return False
        if not theirs.is_floating_point():
            if not torch.equal(ours, theirs):
                return False
            continue
        apart, most = ((each.double() - theirs.double()).norm() for each in (ours, floats))
        further = (ours.double() - floats.double()).norm()
        is_close = apart <= _ROUNDING_SHARE * most or further <= _NO_FURTHER * most
        if not (is_close and most < math.inf):  # neither is NaN
            return False
    return True


def difference(
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    *,
    low_precision: bool,
    whole: bool = False,
) -> str:
    """Describe how an island's results differ from eager torch's; empty if they are close enough.

    Args:
        actual, expected: the results.
        low_precision, whole: as in `island_tolerance`.
    """
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if low_precision and whole and theirs.dtype is ours.dtype is torch.bool:
            # A comparison of nearly equal numbers may flip once they are rounded, wherever that happens.
            ours, theirs = ours.float(), theirs.float()
        allowed = island_tolerance(theirs, low_precision=low_precision, whole=whole)
        found = compare_tensors(ours, theirs, tolerance=allowed)
        if not found.ok:
            return f"output {index}: {found.detail}"
    return ""


def run_artifact(
    artifact: Artifact,
    island: Island,
    target: Target,
    options: Options,
    arguments: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Load an artefact and run it once."""
    with torch.no_grad():
        return target.load(artifact, island.inputs, island.outputs, options)(arguments)
