"""Profiles a model on a target: the engine's own times, attributed to ops, modules and source lines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from torchport import capture, targets
from torchport.analysis import bytes_of, flops_of
from torchport.bringup.machine import describe_machine, versions_for
from torchport.capture import buffers_kept, module_path, source_line
from torchport.compiler.build import Source, build_program
from torchport.compiler.island_trial import reference_values
from torchport.compiler.normalise import is_op, normalise
from torchport.compiler.outline import Piece
from torchport.compiler.plan import Plan
from torchport.compiler.speed_trial import nodes_by_name, seconds_of
from torchport.errors import SurveyError
from torchport.records import DEFAULT_TARGET, OpTime, Profile, ProfiledOp
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets import Options, Target
from torchport.targets.host.profile import eager_op_times

_RUNS = 7
_SIZE = 1024  # of the square matrices whose product measures peak FLOP/s
_BYTES = 2**26  # of the copy that measures memory bandwidth
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class RooflineLimits:
    """The limits of a machine.

    Args:
        peak_flops: floating-point operations per second.
        bandwidth: bytes per second.
    """

    peak_flops: float
    bandwidth: float


def profile(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    roofline: RooflineLimits | None = None,
    name: str = "",
) -> Profile:
    """Compile a model for a target and measure how long each of its ops takes there.

    Islands are measured by their engine: OpenVINO's counters, onnxruntime's profile, torch's profiler. Ops
    that stay on the host are measured by torch's profiler.

    Args:
        model: a module, or any callable on tensors.
        args, kwargs: example inputs.
        target: the target's name.
        options: the target's options.
        roofline: the machine's limits; measured if None.
        name: the model's name in the record.

    Returns:
        A row for each kernel, in the order in which they run.

    Raises:
        CaptureError: the model cannot be captured.
        TargetError: the target, option or device does not exist.

    Example:
        >>> found = profile(torch.nn.Linear(64, 64), (torch.ones(8, 64),), target="host")
        >>> found.fold("op")[0].key
        'aten.addmm.default'
    """
    found = targets.find_engine(target)
    chosen = found.make_options(options)
    if roofline is not None and not (roofline.peak_flops > 0 and roofline.bandwidth > 0):
        raise SurveyError(
            f"peak FLOP/s and bandwidth must be positive, not {roofline.peak_flops} and {roofline.bandwidth}",
            remedy="pass FLOP/s and bytes per second, such as 1e12 and 1e11",
        )
    captured = capture.export(model, args, kwargs, name=name)
    graph = normalise(captured, found)
    source = Source(captured.name, graph, captured.leaves, captured.inputs.paths, captured.result)
    program, plan = build_program(source, found, chosen)
    limits = roofline or measure_limits(captured.leaves)
    with buffers_kept(captured.module):
        measured = _Measured(program, plan, captured.leaves, found, chosen)
        seconds = measured.call_seconds()
        times = measured.op_times()
    rows = [_row(found_time, limits, found.name) for found_time in times]
    return Profile(
        captured.name,
        found.name,
        seconds,
        tuple(rows),
        limits.peak_flops,
        limits.bandwidth,
        measured.unmeasured,
        versions_for(found.name),
        describe_machine(),
    )


def measure_limits(leaves: Sequence[torch.Tensor]) -> RooflineLimits:
    """Measure the limits of these tensors' device: with a float32 matrix product, and a copy."""
    device = leaves[0].device if leaves else torch.device("cpu")
    left, right = (torch.rand(_SIZE, _SIZE, device=device) for _ in range(2))
    source, sink = (torch.zeros(_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    with torch.no_grad():
        product = min(seconds_of(lambda: left @ right) for _ in range(_REPEATS))
        copy = min(seconds_of(lambda: sink.copy_(source)) for _ in range(_REPEATS))
    return RooflineLimits(2 * _SIZE**3 / product, 2 * _BYTES / copy)


@dataclass(slots=True)
class _Timed:
    """An op of the graph with the kernels that compute it, and the ops that were fused with it."""

    node: fx.Node | None
    place: str
    kernels: list[OpTime] = field(default_factory=list)
    fused: list[fx.Node] = field(default_factory=list)


class _Measured:
    """Times the parts of a program.

    Args:
        program, plan: the compiled program and its plan.
        leaves: the input tensors to run it on.
        target, options: the target and options that it was compiled for.
    """

    def __init__(
        self,
        program: RunnableProgram,
        plan: Plan,
        leaves: Sequence[torch.Tensor],
        target: Target,
        options: Options,
    ) -> None:
        self.unmeasured: dict[str, float] = {}
        self._program = program
        self._plan = plan
        self._leaves = leaves
        self._target = target
        self._options = options

    def call_seconds(self) -> float:
        """Return the median duration of a call."""
        taken = []
        with torch.random.fork_rng(devices=[]):
            for _ in range(_RUNS + 1):
                leaves = [leaf.clone() for leaf in self._leaves]
                taken.append(seconds_of(lambda given=leaves: self._program.run(given)))  # type: ignore[misc]  # a lambda's default has no type
        return statistics.median(taken[1:])

    def op_times(self) -> list[_Timed]:
        """Return every op's times, in graph order."""
        whole = self._plan.graph.graph_module
        leaves = [leaf.clone() for leaf in self._leaves]
        pieces = list(self._plan.pieces.values())
        wanted = {node for piece in pieces for node in piece.inputs}
        values = reference_values(whole, leaves, wanted)
        inside = {node for piece in pieces for node in piece.nodes}
        found: dict[fx.Node | None, list[_Timed]] = {}
        names = {node.name: node for node in whole.graph.nodes}
        for entry in eager_op_times(whole, [leaf.clone() for leaf in self._leaves]):
            node = names[entry.node]
            if node not in inside and is_op(node):
                found.setdefault(node, []).append(_Timed(node, "host", [entry]))
        for piece in pieces:
            arguments: list[torch.Tensor] = [values[node] for node in piece.inputs]  # type: ignore[misc]  # ensured by the verdicts
            for timed in self._piece_times(piece, arguments):
                found.setdefault(timed.node or piece.nodes[-1], []).append(timed)
        return [timed for node in whole.graph.nodes for timed in found.get(node, ())]

    def _piece_times(self, piece: Piece, arguments: Sequence[torch.Tensor]) -> list[_Timed]:
        times = self._target.op_times(piece.island, self._options, arguments)
        if times is None:
            self.unmeasured[piece.island.name] = self._piece_seconds(piece, arguments)
            return []
        places = nodes_by_name(piece)
        timed: dict[fx.Node, _Timed] = {}
        others: list[_Timed] = []
        for entry in times:
            node = _op_of(places.get(entry.node))
            if node is not None:
                timed.setdefault(node, _Timed(node, self._target.name)).kernels.append(entry)
            elif entry.seconds:
                others.append(_Timed(None, self._target.name, [entry]))
        if timed:
            for node in piece.nodes:
                owner = _owner(node, timed, set(piece.nodes))
                if owner is not None and owner is not node and is_op(node):
                    timed[owner].fused.append(node)
        return [*timed.values(), *others]

    def _piece_seconds(self, piece: Piece, arguments: Sequence[torch.Tensor]) -> float:
        island = next(
            (item for item in self._program.islands.values() if item.meta.name == piece.island.name), None
        )
        if island is None:
            return 0.0
        with torch.no_grad():
            island(arguments)
            began = time.perf_counter()
            island(arguments)
            return time.perf_counter() - began


def _op_of(node: fx.Node | None) -> fx.Node | None:
    """Return the op whose result a node is, or selects one of."""
    while node is not None and not is_op(node):
        node = next(iter(node.all_input_nodes), None)
    return node


def _owner(node: fx.Node, timed: Mapping[fx.Node, _Timed], inside: set[fx.Node]) -> fx.Node | None:
    """Return the op whose kernel computes `node`.

    An engine names a kernel after one of the ops that it fused. Ops with FLOPs (products) are assumed to be
    fused with a later op, cheap ops with an earlier one.
    """
    if node in timed:
        return node
    after = _nearest(node, timed, inside, lambda each: list(each.users))
    before = _nearest(node, timed, inside, lambda each: list(each.all_input_nodes))
    return (after or before) if flops_of(node) else (before or after)


def _nearest(
    node: fx.Node,
    timed: Mapping[fx.Node, _Timed],
    inside: set[fx.Node],
    neighbours: Callable[[fx.Node], list[fx.Node]],
) -> fx.Node | None:
    seen = {node}
    waiting = [node]
    while waiting:
        for near in neighbours(waiting.pop(0)):
            if near in timed:
                return near
            if near in inside and near not in seen:
                seen.add(near)
                waiting.append(near)
    return None


def _row(timed: _Timed, limits: RooflineLimits, target: str) -> ProfiledOp:
    longest = max(timed.kernels, key=lambda kernel: kernel.seconds)
    nodes = [] if timed.node is None else [timed.node, *timed.fused]
    main = max(nodes, key=flops_of) if nodes else None
    flops, moved = sum(map(flops_of, nodes)), sum(map(bytes_of, nodes))
    return ProfiledOp(
        op="" if main is None else str(main.target),
        node="" if main is None else main.name,
        fused=tuple(str(node.target) for node in nodes if node is not main),
        module_path="" if main is None else module_path(main),
        source="" if main is None else source_line(main),
        place=timed.place,
        seconds=sum(kernel.seconds for kernel in timed.kernels),
        kernel=longest.kernel,
        precision=longest.precision,
        is_reference=any(kernel.is_reference for kernel in timed.kernels),
        flops=flops,
        bytes=moved,
        roofline_seconds=max(flops / limits.peak_flops, moved / limits.bandwidth),
    )
