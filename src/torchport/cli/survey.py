"""`torchport survey`: records the ops of many models, or their results on a target."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.html_option import html_option, write_page
from torchport.cli.model_options import MODEL_FORMS, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.cli.target_options import settings_option, split_settings
from torchport.cli.text import count, quantity, seconds
from torchport.errors import ReportError
from torchport.records import JSON, SurveyRow
from torchport.report import read_report

if TYPE_CHECKING:
    from torchport.survey import SurveyProgress

_GB = 1_000_000_000


@click.command(cls=Command, epilog=MODEL_FORMS, short_help="Record the ops of many models, or bring them up.")
@click.argument("models", nargs=-1, metavar="[MODEL...]")
@click.option(
    "--model", "named", multiple=True, metavar="NAME", help="A model; a bare name is looked up on the hub."
)
@click.option("--zoo", "zoos", multiple=True, metavar="ZOO", help="torchvision, timm or transformers.")
@click.option(
    "--filter", "pattern", default="*", metavar="GLOB", help="Glob for model names in the zoo: 'resnet*'."
)
@click.option(
    "--backend",
    default="stat",
    show_default=True,
    metavar="stat|TARGET",
    help="`stat` records ops; a target's name records results on that target.",
)
@settings_option
@click.option("--backward", is_flag=True, help="Also record the backward graphs.")
@click.option("--train", is_flag=True, help="Trace models in training mode.")
@click.option("--profile", is_flag=True, help="Also profile a run with real values.")
@model_options
@click.option(
    "--engine", default="local", show_default=True, metavar="local|ray", help="Engine that runs the models."
)
@click.option(
    "--address", metavar="HOST:PORT", help="Ray cluster to use; without it, one is started on this machine."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Models to run in parallel; by default one per processor, or one at a time on a target.",
)
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Time limit per model, in seconds.",
)
@click.option(
    "--memory",
    type=Number(min=0, min_open=True),
    metavar="GB",
    help="Memory limit per model process, in GB; by default its share of the machine's memory.",
)
@click.option("--retry", is_flag=True, help="Retry models that failed before.")
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("stat"),
    show_default=True,
    metavar="DIR",
    help="Directory for the records.",
)
@html_option
@click.pass_obj
def survey(
    output: Output,
    models: tuple[str, ...],
    named: tuple[str, ...],
    zoos: tuple[str, ...],
    pattern: str,
    backend: str,
    settings: tuple[str, ...],
    backward: bool,
    train: bool,
    profile: bool,
    inputs: str | None,
    weights: bool,
    batch: int | None,
    engine: str,
    address: str | None,
    workers: int | None,
    timeout: float,
    memory: float | None,
    retry: bool,
    directory: Path,
    html_path: Path | None,
) -> int:
    """Record every op of each MODEL, as AOTAutograd passes them to a compiler, in DIR/raw.

    Each model runs in its own process, with time and memory limits; one that fails affects only its own row.
    An interrupted survey resumes where it stopped. Models are traced on fake tensors: nothing is computed
    and no weights are needed. With a target as backend, models are brought up there, as `torchport bench`
    does. With --json, writes one line per model as it finishes, and a summary line. Exits with 0 if every
    model is recorded, 1 if one is not, 2 if the survey failed. In Python: torchport.run_survey.

    \b
    Examples:
      torchport survey torchvision:resnet18 hf:bert-base-uncased --backward
      torchport survey --zoo torchvision --backward -o stat --html stat/index.html
      torchport survey --zoo timm --filter 'vit_*' --timeout 120
      torchport survey --zoo transformers --engine ray --address auto
      torchport survey --model phiyodr/bert-large-finetuned-squad2 --no-weights --profile
      torchport survey --zoo torchvision --filter 'resnet*' --backend openvino --no-weights
    """
    start = time.monotonic()
    with output.working("Starting"):
        from torchport.survey import SurveySettings, run_survey
        from torchport.survey.engines import make_engine
        from torchport.zoo import list_zoo

        chosen = [*models, *(_with_scheme(name) for name in named)]
        for zoo in zoos:
            chosen += list_zoo(zoo, pattern)
        if not chosen:
            raise click.UsageError("name a MODEL or a --zoo")
        if pattern != "*" and not zoos:
            raise click.UsageError("--filter requires --zoo")
        one = 1 if backend != "stat" else None  # parallel runs would distort each other's times
        runner = make_engine(engine, workers=workers or one, address=address)
    with _progress(output) as progress:
        rows = run_survey(
            chosen,
            output=directory,
            settings=SurveySettings(
                backend, backward, train, profile, weights, batch, inputs, split_settings(settings)
            ),
            engine=runner,
            timeout=timeout,
            memory=None if memory is None else int(memory * _GB),
            retry=retry,
            progress=progress,
        )
    summary = _summary(rows, directory, time.monotonic() - start)
    if output.json:
        output.json_text(summary)
    else:
        _render(rows, output.out)
        output.message(_sentence(summary, backend))
    if html_path is not None:
        try:
            write_page(output, read_report(directory), html_path)
        except ReportError as error:  # no model is ok: the rows say why
            output.message(f"no HTML file was written: {error}")
    return exit_codes.FINE if all(row.status == "ok" for row in rows) else exit_codes.FINDING


def _with_scheme(name: str) -> str:
    """Return a model's name, prefixed with `hf:` if it names no library or file."""
    return name if ":" in name or name.endswith(".py") else f"hf:{name}"


def _summary(rows: Sequence[SurveyRow], directory: Path, spent: float) -> dict[str, JSON]:
    done = [row for row in rows if row.status == "ok"]
    return {
        "models": len(rows),
        "ok": len(done),
        "failed": len(rows) - len(done),
        "forward_ops": sum(row.forward_ops or 0 for row in done),
        "backward_ops": sum(row.backward_ops or 0 for row in done),
        "seconds": round(spent, 3),
        "output": str(directory),
    }


def _sentence(summary: dict[str, JSON], backend: str) -> str:
    models, ok, spent = summary["models"], summary["ok"], summary["seconds"]
    assert isinstance(models, int)
    assert isinstance(spent, float)
    text = (
        f"{ok} of {count(models, 'model')} recorded in {seconds(spent)}; records are in {summary['output']}"
    )
    return f"{text}: `torchport report {summary['output']}` shows them"


def _render(rows: Sequence[SurveyRow], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("model", "status"):
        table.add_column(heading, no_wrap=True)
    for heading in ("forward ops", "backward ops", "graphs", "time", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row in rows:
        table.add_row(
            row.model,
            row.status,
            *("-" if ops is None else str(ops) for ops in (row.forward_ops, row.backward_ops)),
            str(row.graphs or "-"),
            seconds(row.seconds),
            quantity(row.peak_bytes, "B", base=1024),
            row.error or row.note,
        )
    console.print(table, markup=False)


@contextmanager
def _progress(output: Output) -> Iterator[SurveyProgress]:
    """Show a progress bar on a terminal; with `--json`, write a line of JSON for each model."""
    from torchport.survey import SurveyProgress

    class InLines(SurveyProgress):
        def finished(self, row: SurveyRow) -> None:
            if output.json:
                output.json_text(row.to_json())

    if not output.err.is_terminal:
        yield InLines()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.err, transient=True) as bar:
        task = bar.add_task("Starting", total=None, failed=0)

        class OnTerminal(InLines):
            def __init__(self) -> None:
                self._running: list[str] = []
                self._failed = 0

            def planned(self, models: int, done_before: Sequence[SurveyRow]) -> None:
                bar.update(task, total=models, completed=len(done_before))

            def started(self, model: str) -> None:
                self._running.append(model)
                bar.update(task, description=", ".join(self._running))

            def finished(self, row: SurveyRow) -> None:
                super().finished(row)
                self._running.remove(row.model)
                self._failed += row.status != "ok"
                bar.update(task, advance=1, failed=self._failed, description=", ".join(self._running))

        yield OnTerminal()
