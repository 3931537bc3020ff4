"""Runs a row with torch.compile, whose graphs break where a shape depends on values; they count together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from models import load_to_run
from rows import Placed, reasons
from torch import fx

import torchport
from torchport.bringup.machine import describe_machine, versions_for
from torchport.compiler.backend import backend
from torchport.compiler.graph_programs import recording_coverage
from torchport.errors import one_line
from torchport.records import PCC_THRESHOLD, BenchRecord, Coverage
from torchport.verification import compare

# Which boxes are kept depends on the last bits of their scores.
_OPTIONS = {"target": "ttnn", "dtype": "float32"}
_GRAPH = "a graph"


def run_graphs(name: str) -> tuple[BenchRecord, Placed]:
    """Run one row; whatever a model raises is in the record."""
    record = BenchRecord(name, "ttnn", "failed", batch=1, pcc_threshold=PCC_THRESHOLD)
    record = replace(record, versions=versions_for("ttnn"), machine=describe_machine())
    built: list[Coverage] = []
    between: Counter[str] = Counter()
    try:
        with torch.no_grad(), recording_coverage() as built:
            record = _run(record, name, between)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row is lost
        record = replace(record, error=one_line(error))
    placed = Placed(name, reasons=(*reasons(built), *_told(between)))
    return _with_ops(record, built, between), placed


def _run(record: BenchRecord, name: str, between: Counter[str]) -> BenchRecord:
    model = load_to_run(name)
    compiled = torch.compile(model.module, backend=_backend)

    def call(function: Callable[..., object]) -> object:
        torch.manual_seed(0)  # ViLT draws the order of an image's patches
        return function(*model.args, **model.kwargs)

    start = time.perf_counter()
    call(compiled)
    took = time.perf_counter() - start
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ours = call(compiled)
    between.update(event.name for event in profile.events() if _is_outside(event))
    fallbacks = torchport.fallbacks()
    compared = compare(_in_order(ours), _in_order(call(model.module)))
    error = ""
    if fallbacks.fallbacks:
        error = f"eager torch ran {fallbacks.fallbacks} of {fallbacks.calls} graphs: {fallbacks.last_reason}"
    elif compared.pcc < PCC_THRESHOLD:
        error = f"the PCC is {compared.pcc:.6f}"
    return replace(
        record,
        status="inaccurate" if error else "ok",
        error=error,
        pcc=compared.pcc,
        max_absolute=compared.max_absolute,
        first_run_time=took,
        simulated=True,
        fallbacks=fallbacks,
    )


def _in_order(result: Any) -> object:
    """Return detections in positional order: scores that differ only in the last bits change their order."""
    if not isinstance(result, list):
        return result
    return [_ordered(each) for each in result]


def _ordered(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    keys = [
        (int(label), *[round(float(side), 1) for side in box])
        for label, box in zip(found["labels"], found["boxes"], strict=True)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return {name: value[order] for name, value in found.items()}


def _backend(graph_module: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    run = backend(graph_module, inputs, options=_OPTIONS)

    def call(*args: object) -> object:
        with torch.profiler.record_function(_GRAPH):
            return run(*args)

    return call


def _is_outside(event: Any) -> bool:
    """Whether a profiled event is an op that neither a graph nor another op called."""
    around = event.cpu_parent
    while around is not None:
        if around.name == _GRAPH or "::" in around.name:
            return False
        around = around.cpu_parent
    return "::" in event.name


def _with_ops(record: BenchRecord, built: list[Coverage], between: Counter[str]) -> BenchRecord:
    """Count the ops of all graphs, and each kind of op between them once, as one that stays on the host."""
    if not built:
        return record
    return replace(
        record,
        ops_before=sum(each.ops_before for each in built) + len(between),
        ops_remain=sum(each.ops_remain for each in built) + len(between),
        transfers=sum(each.transfers for each in built),
        builds=len(built),
    )


def _told(between: Counter[str]) -> tuple[str, ...]:
    if not between:
        return ()
    named = ", ".join(f"{count} × {op}" for op, count in between.most_common())
    return (f"shapes depend on values, so eager torch runs between the graphs: {named}",)
