"""Runs one item of a survey, in the item's own process: loads the model, records it, writes files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from torchport import zoo
from torchport.bringup.benches import run_benches
from torchport.bringup.isolated_runs import copy_inputs
from torchport.capture import AtenGraph, capture_graphs, recording_backend
from torchport.errors import CaptureError, SurveyError, one_line
from torchport.records import SurveyRow, atomic_write, file_name
from torchport.structure import tensors_in
from torchport.survey.directory import PROFILE, RAW
from torchport.survey.stat.op_rows import rows_of
from torchport.survey.stat.raw_file import write_raw_file
from torchport.survey.work_item import STAT, WorkItem
from torchport.zoo.model import Model


def run_item(item: WorkItem, directory: Path) -> SurveyRow:
    """Run an item.

    Args:
        item: the model and what to do with it.
        directory: where its files go: `raw/`, `profile/`, or `bench/` and `coverage/`.

    Returns:
        Its row, without the time and memory, which only the parent process knows.

    Raises:
        TorchportError: the model cannot be loaded, traced or run.
        Exception: whatever the model raises.
    """
    if item.settings.backend != STAT:
        return _run_bench(item, directory)
    recorded = _record(item)
    name = Path(file_name(item.model)).with_suffix(".parquet").name
    rows = list(rows_of(item.model, recorded.graphs))
    write_raw_file(rows, directory / RAW / name)
    if item.settings.profile:
        _write_profile(item, directory)
    forward = sum(row["direction"] == "fw" for row in rows)
    return SurveyRow(
        item.model,
        "ok",
        forward_ops=forward,
        backward_ops=len(rows) - forward if item.settings.backward else None,
        graphs=len({(row["direction"], row["graph"]) for row in rows}),
        raw=name,
        note=recorded.note,
    )


@dataclass(frozen=True, slots=True)
class _Recorded:
    graphs: tuple[AtenGraph, ...]
    note: str


def _record(item: WorkItem) -> _Recorded:
    """Return the graphs of a model, captured on fake tensors or, if that fails, on real values."""
    settings = item.settings
    model = _load(item, without_values=not item.is_file)
    try:
        graphs = capture_graphs(
            model.module, model.args, model.kwargs, backward=settings.backward, name=item.model
        )
        return _Recorded(graphs, "")
    except CaptureError as error:
        refusal = error
    if not item.is_file:
        model = _load(item, without_values=False)
    try:
        graphs = record_run(model, settings.backward)
    except Exception as error:
        raise SurveyError(
            f"{refusal.what}; and on real values it raised {one_line(error)}", where=refusal.where
        ) from error
    return _Recorded(graphs, f"ran on real values: {refusal.what}")


def _load(item: WorkItem, *, without_values: bool) -> Model:
    settings = item.settings
    model = zoo.load(
        item.model,
        inputs=settings.inputs,
        weights=settings.weights and not without_values,
        batch=settings.batch,
        device="meta" if without_values else "cpu",
    )
    model.module.train(settings.train)
    return model


def record_run(model: Model, backward: bool) -> tuple[AtenGraph, ...]:
    """Compile a model and run it on its inputs; return the compiled graphs, forward ones first.

    Args:
        model: the model, with values.
        backward: whether to run the backward pass too.
    """
    graphs: list[AtenGraph] = []
    compiled = torch.compile(model.module, backend=recording_backend(graphs.append))
    try:
        run_once(compiled, model, backward)
    finally:
        torch.compiler.reset()
    return tuple(sorted(graphs, key=lambda graph: graph.direction != "fw"))


def run_once(call: object, model: Model, backward: bool) -> None:
    """Call a model, or its compiled form, and run the backward pass from all of its outputs."""
    assert callable(call)
    args, kwargs = copy_inputs(model)
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(backward):
        torch.manual_seed(0)
        result = call(*args, **kwargs)
        if not backward:
            return
        outputs = _with_gradients([tensor for _, tensor in tensors_in(result)])
        if not outputs:
            raise CaptureError("no output has a gradient, so there is no backward graph", where=model.name)
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def _with_gradients(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def _write_profile(item: WorkItem, directory: Path) -> None:
    """Profile an eager run of the model on real values, after a warm-up run."""
    model = _load(item, without_values=False)
    run_once(model.module, model, item.settings.backward)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run_once(model.module, model, item.settings.backward)
    with atomic_write(directory / PROFILE / file_name(item.model)) as temporary:
        profiler.export_chrome_trace(str(temporary))


def _run_bench(item: WorkItem, directory: Path) -> SurveyRow:
    settings = item.settings
    [record] = run_benches(
        [item.model],
        targets=[settings.backend],
        directory=directory,
        options={settings.backend: settings.options},
        load=lambda _: _load(item, without_values=False),
    )
    if record.status == "failed":
        return SurveyRow(item.model, "raised", error=record.error)
    return SurveyRow(item.model, "ok", note=record.error)  # inaccurate: the record says by how much
