"""What a model costs: per op, per module and in total; its memory over time, and a roofline estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torchport.errors import RecordError
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpCost(Record):
    """One call of an op.

    Args:
        op_id: the id of its entry in the table of ops.
        name: the call's name within its module.
        module_path: the module that called it.
        phase: the pass that it runs in, `forward` or `backward`.
        flops: the FLOPs of matrix products, convolutions and attention, two for each multiply-add.
        vector_flops: the FLOPs of everything else.
        bytes_read, bytes_written: the bytes that its kernels read and write.
        allocated_bytes: the bytes of memory that it allocates.
        sources: the indices of the calls that produced its input tensors.
    """

    op_id: str
    name: str
    module_path: str
    phase: Literal["forward", "backward"]
    flops: int
    vector_flops: int
    bytes_read: int
    bytes_written: int
    allocated_bytes: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModuleCost(Record):
    """What a module costs, its submodules included.

    Args:
        path: the module's path; `(root)` for the model itself.
        class_name: its class.
        calls: how often it is called.
        output_shapes: the shapes that its last call returned.
        parameters, parameter_bytes: its parameters, with those of submodules; tied ones count once.
        flops, vector_flops, bytes_read, bytes_written: the totals over its ops, backward ones included.
        backward_flops: the part of `flops` in the backward pass.
        output_bytes: the bytes that its last call returned.
        peak_bytes: the peak of live memory while it ran.
    """

    path: str
    class_name: str
    calls: int
    output_shapes: tuple[str, ...]
    parameters: int
    parameter_bytes: int
    flops: int
    vector_flops: int
    bytes_read: int
    bytes_written: int
    backward_flops: int
    output_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPeak(Record):
    """The moment at which the memory that the run allocates peaks.

    Args:
        bytes: the live tensors plus the running kernel's workspace.
        tensor_bytes: the live tensors alone.
        workspace_bytes: the CPU kernel's workspace; 0 if it is unknown.
        step: the kernel's index in the timeline.
        op: the kernel, such as `aten.convolution.default`.
        module_path: the module that called it.
        phase: the pass that it runs in, `forward` or `backward`.
        estimated_because: why `bytes`, `timeline` and the totals derived from them are an estimate; empty if
            they are exact. A record written before this field existed does not say, so it is an estimate.
    """

    bytes: int
    tensor_bytes: int
    workspace_bytes: int
    step: int
    op: str
    module_path: str
    phase: Literal["forward", "backward"]
    estimated_because: str = "the record does not say whether it is exact"

    @property
    def is_estimate(self) -> bool:
        """Whether the peak is an estimate rather than exact."""
        return bool(self.estimated_because)


@dataclass(frozen=True, slots=True)
class Roofline(Record):
    """A device's estimated run time if each op is limited by arithmetic or by memory, whichever takes longer.

    Args:
        peak_flops: the device's peak operations per second.
        bandwidth: its memory bandwidth in bytes per second.
        seconds: the estimate for one run.
        compute_seconds: the part spent in compute-bound ops.
        memory_seconds: the part spent in memory-bound ops.
        ridge: the arithmetic intensity at which both limits are equal.
    """

    peak_flops: float
    bandwidth: float
    seconds: float
    compute_seconds: float
    memory_seconds: float
    ridge: float


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """What one run of a model costs.

    Args:
        model_class: the model's class.
        backward: whether the backward pass is included.
        flops: the FLOPs of matrix products, convolutions and attention, two for each multiply-add.
        backward_flops: the part of `flops` in the backward pass.
        vector_flops: the FLOPs of everything else.
        bytes_read, bytes_written: the bytes that all kernels read and write.
        arithmetic_intensity: operations of both kinds per byte moved.
        parameters, trainable_parameters, parameter_bytes: the parameters; tied ones count once.
        buffer_bytes, input_bytes: the other memory in use before the run.
        activation_bytes: the peak bytes of live tensors that the run allocates.
        peak: the moment of peak memory, the kernel's workspace included.
        total_bytes: parameters, buffers, inputs and the peak.
        modules: every module, in the order of the tree.
        ops: every call, in order.
        timeline: the live bytes after each kernel, workspace included.
        uncounted: ops of unknown cost, with how often each runs.
        values, note: as in `ModuleMetadata`.
    """

    schema: ClassVar[str] = "torchport.cost/1"

    model_class: str
    backward: bool
    flops: int
    backward_flops: int
    vector_flops: int
    bytes_read: int
    bytes_written: int
    arithmetic_intensity: float
    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    activation_bytes: int
    peak: MemoryPeak | None
    total_bytes: int
    modules: tuple[ModuleCost, ...]
    ops: tuple[OpCost, ...]
    timeline: tuple[int, ...]
    uncounted: dict[str, int]
    values: str = "fake"
    note: str = ""

    def roofline(self, peak_flops: float, bandwidth: float) -> Roofline:
        """Estimate how long a device would take for one run, op by op.

        Args:
            peak_flops: the device's peak operations per second.
            bandwidth: its memory bandwidth in bytes per second.

        Raises:
            RecordError: one of the two is not positive.
        """
        if not (peak_flops > 0 and bandwidth > 0):
            raise RecordError(
                f"peak FLOP/s and bandwidth must be positive, not {peak_flops} and {bandwidth}",
                where="roofline",
                remedy="give FLOP/s and bytes per second, such as 1e12 and 1e11",
            )
        compute = memory = 0.0
        for op in self.ops:
            arithmetic = (op.flops + op.vector_flops) / peak_flops
            transfer = (op.bytes_read + op.bytes_written) / bandwidth
            if arithmetic >= transfer:
                compute += arithmetic
            else:
                memory += transfer
        return Roofline(
            peak_flops, bandwidth, compute + memory, compute, memory, ridge=peak_flops / bandwidth
        )
