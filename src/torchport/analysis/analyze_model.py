"""Analyzes a model on its inputs: unique modules, unique ops, cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from torchport.analysis.model_cost import OpCosts, measure_cost
from torchport.analysis.unique_modules import ModelOrigin, UniqueModules
from torchport.analysis.unique_ops import PlacedOp, UniqueOps
from torchport.capture import OpStream, StreamedOp, stream_ops
from torchport.records import MODULES_FILE, Analysis
from torchport.structure import call_arguments, flatten_call


def analyze(
    model: nn.Module | Callable[..., object],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    backward: bool = False,
    name: str = "",
    origin: ModelOrigin | None = None,
) -> Analysis:
    """Return a model's unique modules and ops, and what one run of it costs.

    The run uses fake tensors: it needs neither weights nor memory, and the model may be on the meta device.
    If control flow depends on values, the run uses copies of the real tensors, and `note` says so. The model
    is not modified.

    Args:
        model: a module, or any callable on tensors.
        args, kwargs: example inputs, of any class.
        backward: whether to include the backward pass: its ops, their cost, and the memory of both passes.
        name: the model's name in the record.
        origin: where the model comes from, for the metadata.

    Returns:
        The analysis: `.modules`, `.ops`, `.cost`; `.save(dir)` writes them.

    Raises:
        CaptureError: the inputs do not fit, the model raises, or it needs values that it does not have.

    Example:
        >>> analysis = analyze(torch.nn.Linear(2, 3), (torch.ones(5, 2),))
        >>> analysis.cost.flops, analysis.cost.parameters
        (60, 9)
    """
    name = name or type(model).__name__
    stream = stream_ops(model, args, kwargs, name=name)
    training = stream_ops(model, args, kwargs, backward=True, name=name) if backward else None
    ops = [*stream.ops, *_backward_ops(training, len(stream.ops))]
    modules = UniqueModules(stream, origin or ModelOrigin())
    table = modules.table()
    costs = OpCosts()
    placed = [PlacedOp(op, modules.id_of(op.module_call, op.path), costs.of(op)) for op in ops]
    costs.uncounted.update(stream.higher_order)
    unique = UniqueOps(placed, {entry.id: entry.class_name for entry in table.modules})
    inputs = flatten_call(*call_arguments(args, kwargs)).leaves
    return Analysis(
        model=name,
        modules=table,
        ops=unique.table(MODULES_FILE, stream.values, stream.note),
        cost=measure_cost(stream, training or stream, placed, unique.placed, inputs, costs.uncounted),
    )


def _backward_ops(training: OpStream | None, before: int) -> list[StreamedOp]:
    """Return the backward pass's ops, with sources renumbered to follow the `before` forward ops."""
    if training is None:
        return []
    numbers = [number for number, op in enumerate(training.ops) if op.phase == "backward"]
    places = {number: before + place for place, number in enumerate(numbers)}
    return [
        dataclasses.replace(
            training.ops[number],
            sources=tuple(places[source] for source in training.ops[number].sources if source in places),
        )
        for number in numbers
    ]
