"""What a model costs: per op, per module and in all; its memory over time, and a roofline's estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torchport.errors import RecordError
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class OpCost(Record):
    """One call of an op.

    Args:
        op_id: its entry in the table of ops.
        name: the call's name within its module.
        module_path: the module that called it.
        phase: in the forward or the backward pass.
        flops: of matrix products, convolutions and attention: two for each multiply and add.
        vector_flops: of everything else.
        bytes_read, bytes_written: by its kernels.
        allocated_bytes: of new memory.
        sources: the calls, by their numbers, that made its tensors.
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
    """A module with all that is in it.

    Args:
        path: the module's path; `(root)` for the model itself.
        class_name: its class.
        calls: how often it is called.
        output_shapes: what its last call returned.
        parameters, parameter_bytes: of it and what is in it, tied ones once.
        flops, vector_flops, bytes_read, bytes_written: of its ops, backward ones included.
        backward_flops: the part of `flops` in the backward pass.
        output_bytes: of what its last call returned.
        peak_bytes: the most memory that lived while it ran.
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
    """The moment at which most memory lives, of what the run allocates.

    Args:
        bytes: the tensors that live, and the workspace of the kernel that runs.
        tensor_bytes: the tensors alone.
        workspace_bytes: what the CPU's kernel takes for itself; 0 where nothing is known of it.
        step: the kernel's place in the timeline.
        op: the kernel, such as `aten.convolution.default`.
        module_path: the module that called it.
        phase: in the forward or the backward pass.
        estimated_because: why `bytes`, `timeline` and what is added up from them are an estimate; empty where
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
        """Whether the peak is an estimate, and not exact."""
        return bool(self.estimated_because)


@dataclass(frozen=True, slots=True)
class Roofline(Record):
    """How long a device would take, were every op bound by its arithmetic or its memory, whichever is longer.

    Args:
        peak_flops: the operations a second that the device can do.
        bandwidth: the bytes a second that it can move.
        seconds: the estimate for one run.
        compute_seconds: the part in ops that arithmetic bounds.
        memory_seconds: the part in ops that memory bounds.
        ridge: the arithmetic intensity at which the two meet.
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
        backward: whether the backward pass is in it.
        flops: of matrix products, convolutions and attention: two for each multiply and add.
        backward_flops: the part of `flops` in the backward pass.
        vector_flops: of everything else.
        bytes_read, bytes_written: by all kernels.
        arithmetic_intensity: all operations for each byte moved.
        parameters, trainable_parameters, parameter_bytes: tied ones once.
        buffer_bytes, input_bytes: what else is there before the run.
        activation_bytes: the most bytes of tensors that live at a time, of those that the run makes.
        peak: that moment, with the workspace of the kernel.
        total_bytes: parameters, buffers, inputs and the peak.
        modules: every module, in the order of the tree.
        ops: every call, in order.
        timeline: the bytes that live after each kernel, workspace included.
        uncounted: ops of unknown cost, with how often they run.
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
            peak_flops: the operations a second that the device can do.
            bandwidth: the bytes a second that it can move.

        Raises:
            RecordError: one of them is not positive.
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
