"""Checks on the target whether it computes layers in eight bits, and whether that makes the model faster."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import fx, nn

from torchport import capture, targets
from torchport.compiler import compile
from torchport.compiler.island_trial import reference_values
from torchport.compiler.normalise import normalise
from torchport.compiler.plan import Planner
from torchport.compiler.speed_trial import seconds_of
from torchport.compiler.timing import time_in_turns
from torchport.errors import TorchportError
from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.graph_quantization import GraphQuantization
from torchport.quantization.quantized_model import GraphCall
from torchport.records import OpTime
from torchport.targets import Target

_log = logging.getLogger(__name__)

# The ops worth computing in eight bits, in the quantized graph and in the one passed to a target.
_PRODUCTS = (
    "aten.conv", "aten.linear.", "aten.matmul.", "aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm.",
    "aten.scaled_dot_product_attention.",
)  # fmt: skip
_EIGHT_BITS = ("i8", "u8", "s8")
_RATIO = 1.3  # of a layer's times by the engine's profiler, int8 to float, above which it is slower
# Kernels that compute products, and kernels that convert operands and results, by the engines' names.
_PRODUCT_KERNELS = re.compile("Conv(?!ert)|MatMul|Gemm|FullyConnected|InnerProduct|Attention")
_MOVES = frozenset({"Reorder", "Convert", "QuantizeLinear", "DequantizeLinear", "Transpose", "Reshape"})
_SLOWER = 1.03  # ratio of the fastest calls, quantized to float, above which the quantized model is slower
_SECONDS = 2.0  # for timing whole calls


@dataclass(slots=True)
class Speeds:
    """The timings on this machine.

    Args:
        layers: the times of each layer by its name, in floats and in its current precision.
        seconds_float, seconds: the times of a call, in floats and with the current plan.
    """

    layers: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    seconds_float: float | None = None
    seconds: float | None = None


def keep_speed(
    quantization: GraphQuantization, data: CalibrationData, target_name: str, progress: Progress
) -> Speeds:
    """Put layers back to floats that the target computes in floats anyway, or that make the model slower.

    The engine's profiler is noisy for single layers: it counts only if whole calls are slower in int8. If
    they still are after that, all layers go back.
    """
    target = targets.find(target_name)
    found = Speeds()
    if not target.is_timed:
        return found
    args, kwargs = data.call(0)
    floats = GraphCall(quantization.floats.graph_module, quantization.floats.call).eval()
    progress("Timing", 1, 3)
    kernels = _layer_times(quantization, floats, target, args, kwargs)
    free = set(quantization.free())
    for name, (_, after) in kernels.items():
        if name in free and after.precision.lower() not in _EIGHT_BITS:
            quantization.put_back(name, "no_kernel", f"{target_name} computes it with {after.kernel}")
    progress("Timing", 2, 3)
    call = _Timed(quantization, floats, args, kwargs, target_name)
    found.seconds_float, found.seconds = call.seconds()
    if found.seconds > _SLOWER * found.seconds_float:
        for name, (before, after) in kernels.items():
            if name in quantization.free() and before is not None and after.seconds > _RATIO * before:
                times = f"{1e6 * after.seconds:.0f} µs in int8, {1e6 * before:.0f} µs in floats"
                quantization.put_back(name, "slower", f"it takes {times}")
        found.seconds_float, found.seconds = call.seconds()
    if found.seconds > _SLOWER * found.seconds_float:
        times = f"{1e3 * found.seconds:.3g} ms in int8, {1e3 * found.seconds_float:.3g} ms in floats"
        for name in quantization.free():
            quantization.put_back(name, "slower", f"the model takes {times}")
        # The final model is not the one that was timed.
        found.seconds = found.seconds_float
        if not quantization.is_float:
            found.seconds_float, found.seconds = call.seconds()
    found.layers = {
        name: (before, after.seconds if quantization.plans[name].precision == "int8" else before)
        for name, (before, after) in kernels.items()
    }
    progress("Timing", 3, 3)
    return found


class _Timed:
    """Times whole calls of the quantized model under its current plan, alternating with the float model."""

    def __init__(
        self,
        quantization: GraphQuantization,
        floats: nn.Module,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        target: str,
    ) -> None:
        self._quantization = quantization
        self._args, self._kwargs, self._target = args, kwargs, target
        self._floats = self._compiled(floats)

    def seconds(self) -> tuple[float, float]:
        """Return the fastest calls' times, in floats and quantized: interference only ever adds time."""
        quantized = self._compiled(self._quantization.module())
        with torch.no_grad():
            floats, own = time_in_turns(
                lambda: seconds_of(self._floats), lambda: seconds_of(quantized), budget=_SECONDS
            )
        return min(floats), min(own)

    def _compiled(self, module: nn.Module) -> Callable[[], object]:
        made = compile(module, self._args, self._kwargs, target=self._target, options={"speed_trial": False})
        with torch.no_grad():
            made(*self._args, **self._kwargs)
        return lambda: made(*self._args, **self._kwargs)


def _layer_times(
    quantization: GraphQuantization,
    floats: nn.Module,
    target: Target,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> dict[str, tuple[float | None, OpTime]]:
    """Return, for each layer in int8, its time in floats and the target's current profile of it."""
    nodes = [node.name for node in quantization.floats.graph_module.graph.nodes if _is_product(node)]
    names = {layer.node: layer.name for layer in quantization.layers}
    try:
        before = _product_times(floats, target, args, kwargs)
        after = _product_times(quantization.module(), target, args, kwargs)
    except TorchportError as error:
        _log.info("the layers of %s cannot be timed: %s", quantization.floats.name, error)
        return {}
    if not len(nodes) == len(before) == len(after):
        return {}  # the target's graph has different products, which cannot be matched with layers
    return {
        names[node]: (None if old is None else old.seconds, new)
        for node, old, new in zip(nodes, before, after, strict=True)
        if node in names and new is not None and quantization.plans[names[node]].precision == "int8"
    }


def _product_times(
    module: nn.Module, target: Target, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[OpTime | None]:
    """Return the target's own profile of each product, in order; None for products that it does not run."""
    captured = capture.export(module, args, kwargs)
    graph = normalise(captured, target)
    options = target.make_options({"speed_trial": False})
    target.check_ready(options)
    plan = Planner(captured.name, graph, target, options).plan()
    wanted = {node for piece in plan.pieces.values() for node in piece.inputs}
    values = reference_values(plan.graph.graph_module, captured.leaves, wanted)
    times: dict[fx.Node, OpTime] = {}
    for piece in plan.pieces.values():
        arguments: list[torch.Tensor] = [values[node] for node in piece.inputs]  # type: ignore[misc]  # by the verdicts
        copies = [node for node in piece.island.graph_module.graph.nodes if node.op == "call_function"]
        places = {made.name: node for made, node in zip(copies, piece.nodes, strict=True)}
        for entry in target.op_times(piece.island, options, arguments) or ():
            node = places.get(entry.node)
            if node is not None and _is_product(node):
                known = times.get(node)
                kernel = entry if known is None else max(known, entry, key=_likeliness)
                total = entry.seconds + (known.seconds if known is not None else 0.0)
                times[node] = replace(kernel, seconds=total)
    return [times.get(node) for node in plan.graph.graph_module.graph.nodes if _is_product(node)]


def _likeliness(entry: OpTime) -> tuple[bool, bool, float]:
    """Return a key that ranks a product's kernels: other kernels prepare operands, say, or add a bias."""
    kind = entry.kernel.partition(" ")[0]
    return _PRODUCT_KERNELS.search(kind) is not None, kind not in _MOVES, entry.seconds


def _is_product(node: fx.Node) -> bool:
    return node.op == "call_function" and str(node.target).startswith(_PRODUCTS)
