"""Computes a model's cost from the stream of its ops: per op, per module and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from torchport.analysis.bytes_moved import tensor_bytes
from torchport.analysis.cost import CallCost, cost_of
from torchport.analysis.unique_ops import PlacedOp, call_key
from torchport.capture import Kernel, OpCall, OpStream, StreamedOp
from torchport.records import ROOT, Cost, MemoryPeak, ModuleCost, OpCost, shape_text

_MOST_NAMED = 3


class OpCosts:
    """Computes the costs of ops, each configuration once."""

    def __init__(self) -> None:
        self._known: dict[object, CallCost] = {}
        self.uncounted: Counter[str] = Counter()

    def of(self, op: StreamedOp) -> CallCost:
        """Return the cost of an op: all of its kernels together."""
        costs = [(kernel.call.op, self._of_call(kernel.call)) for kernel in op.kernels]
        self.uncounted.update(str(called) for called, cost in costs if not cost.known)
        return CallCost.sum(cost for _, cost in costs)

    def _of_call(self, call: OpCall) -> CallCost:
        key = call_key(call)
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = cost_of(call)
        return cost


def measure_cost(
    stream: OpStream,
    memory: OpStream,
    placed: Sequence[PlacedOp],
    names: Sequence[tuple[str, str]],
    inputs: Sequence[torch.Tensor],
    uncounted: Counter[str],
) -> Cost:
    """Compute the cost of a run of a model.

    Args:
        stream: the run whose module calls are counted.
        memory: the run that the memory timeline is taken from: the same, or one with the backward pass.
        placed: the ops to count.
        names: for each op, the id of its entry in the table of ops, and the name of the call.
        inputs: the model's inputs.
        uncounted: the ops whose FLOPs are unknown, with their numbers of calls.
    """
    module = stream.module
    timeline = tuple(kernel.live + kernel.workspace.bytes for op in memory.ops for kernel in op.kernels)
    peak = _peak(memory, timeline)
    parameters = _distinct(module.parameters())
    parameter_bytes = _bytes(parameters)
    buffer_bytes = _bytes(_distinct(module.buffers()))
    input_bytes = _bytes(inputs)
    total = CallCost.sum(item.cost for item in placed)
    moved = total.read + total.written
    return Cost(
        model_class=type(module).__name__,
        backward=memory is not stream,
        flops=total.flops,
        backward_flops=sum(item.cost.flops for item in placed if item.op.phase == "backward"),
        vector_flops=total.vector_flops,
        bytes_read=total.read,
        bytes_written=total.written,
        arithmetic_intensity=(total.flops + total.vector_flops) / moved if moved else 0.0,
        parameters=sum(tensor.numel() for tensor in parameters),
        trainable_parameters=sum(tensor.numel() for tensor in parameters if tensor.requires_grad),
        parameter_bytes=parameter_bytes,
        buffer_bytes=buffer_bytes,
        input_bytes=input_bytes,
        activation_bytes=max((kernel.live for op in memory.ops for kernel in op.kernels), default=0),
        peak=peak,
        total_bytes=parameter_bytes + buffer_bytes + input_bytes + (peak.bytes if peak else 0),
        modules=tuple(_module_costs(stream, memory, placed, timeline)),
        ops=tuple(_op_costs(placed, names)),
        timeline=timeline,
        uncounted=dict(uncounted),
        values=stream.values,
        note=stream.note or memory.note,
    )


def _distinct(tensors: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of tensors; a sparse tensor counts as if it were dense."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _peak(memory: OpStream, timeline: Sequence[int]) -> MemoryPeak | None:
    if not timeline:
        return None
    step = max(range(len(timeline)), key=timeline.__getitem__)
    kernels = [(op, kernel) for op in memory.ops for kernel in op.kernels]
    op, kernel = kernels[step]
    return MemoryPeak(
        bytes=timeline[step],
        tensor_bytes=kernel.live,
        workspace_bytes=kernel.workspace.bytes,
        step=step,
        op=str(kernel.call.op),
        module_path=op.path or ROOT,
        phase=op.phase,
        estimated_because=_why_estimated(memory, [kernel for _, kernel in kernels]),
    )


def _why_estimated(memory: OpStream, kernels: Sequence[Kernel]) -> str:
    """Return why the live memory of a real run may differ from the count; empty if it is exact."""
    if any(op.phase == "backward" for op in memory.ops):
        return "autograd decomposes some of its formulas while it is traced, and these allocate extra memory"
    unknown = Counter(str(kernel.call.op) for kernel in kernels if not kernel.workspace.known)
    if not unknown:
        return ""
    named = ", ".join(sorted(unknown)[:_MOST_NAMED]) + (", …" if len(unknown) > _MOST_NAMED else "")
    return f"the workspace of these kernels is not known on this processor: {named}"


def _op_costs(placed: Sequence[PlacedOp], names: Sequence[tuple[str, str]]) -> Iterator[OpCost]:
    for item, (entry, name) in zip(placed, names, strict=True):
        yield OpCost(
            op_id=entry,
            name=name,
            module_path=item.op.path or ROOT,
            phase=item.op.phase,
            flops=item.cost.flops,
            vector_flops=item.cost.vector_flops,
            bytes_read=item.cost.read,
            bytes_written=item.cost.written,
            allocated_bytes=sum(kernel.allocated for kernel in item.op.kernels),
            sources=item.op.sources,
        )


def _module_costs(
    stream: OpStream, memory: OpStream, placed: Sequence[PlacedOp], timeline: Sequence[int]
) -> Iterator[ModuleCost]:
    totals = _totals_by_path(placed)
    peaks = _peaks_by_path(memory, timeline)
    calls: dict[str, int] = Counter(call.path for call in stream.module_calls)
    last = {call.path: call for call in stream.module_calls}
    for path, module in stream.module.named_modules(remove_duplicate=False):
        flops, vector, read, written, backward = totals.get(path, (0, 0, 0, 0, 0))
        parameters = _distinct(module.parameters())
        outputs = last[path].outputs if path in last else ()
        yield ModuleCost(
            path=path or ROOT,
            class_name=type(module).__name__,
            calls=calls.get(path, 0),
            output_shapes=tuple(shape_text(spec.shape) for spec in outputs),
            parameters=sum(tensor.numel() for tensor in parameters),
            parameter_bytes=_bytes(parameters),
            flops=flops,
            vector_flops=vector,
            bytes_read=read,
            bytes_written=written,
            backward_flops=backward,
            output_bytes=sum(tensor_bytes(spec) for spec in outputs),
            peak_bytes=peaks.get(path, 0),
        )


def _totals_by_path(placed: Sequence[PlacedOp]) -> dict[str, tuple[int, int, int, int, int]]:
    """Return FLOPs, vector FLOPs, bytes read and written, and backward FLOPs, of each module's subtree."""
    own: dict[str, list[int]] = {}
    for item in placed:
        sums = own.setdefault(item.op.path, [0] * 5)
        cost = item.cost
        for place, value in enumerate((cost.flops, cost.vector_flops, cost.read, cost.written)):
            sums[place] += value
        sums[4] += cost.flops if item.op.phase == "backward" else 0
    totals: dict[str, list[int]] = {}
    for path, sums in own.items():
        for level in _levels(path):
            total = totals.setdefault(level, [0] * 5)
            for place, value in enumerate(sums):
                total[place] += value
    return {path: (a, b, c, d, e) for path, (a, b, c, d, e) in totals.items()}


def _peaks_by_path(memory: OpStream, timeline: Sequence[int]) -> dict[str, int]:
    """Return the peak of live bytes while each module, or one inside it, ran."""
    peaks: dict[str, int] = {}
    step = 0
    for op in memory.ops:
        here = max(timeline[step : step + len(op.kernels)], default=0)
        step += len(op.kernels)
        peaks[op.path] = max(peaks.get(op.path, 0), here)
    for path, peak in list(peaks.items()):
        for level in _levels(path):
            peaks[level] = max(peaks.get(level, 0), peak)
    return peaks


def _levels(path: str) -> Iterator[str]:
    """Yield a module's path and the paths of all modules that contain it, the outermost first."""
    yield ""
    parts = path.split(".") if path else []
    for depth in range(1, len(parts) + 1):
        yield ".".join(parts[:depth])
