"""`torchport bench`: times models before and after compiling, and writes one record each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from torchport.cli import exit_codes
from torchport.cli.choice_view import showing_choice
from torchport.cli.command import Command
from torchport.cli.html_option import html_option, write_page
from torchport.cli.model_analysis import analyses_for_page
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.cli.target_options import options_by_target, settings_option
from torchport.records import DEFAULT_TARGET, PCC_THRESHOLD, BenchRecord, file_name
from torchport.report import Report, read_report, render_markdown

if TYPE_CHECKING:
    from torchport.bringup.benches import Progress as BenchProgress

_EXIT_CODES = {"ok": exit_codes.FINE, "inaccurate": exit_codes.FINDING, "failed": exit_codes.FAILED}


@click.command(
    cls=Command, epilog=MODEL_FORMS, short_help="Time models before and after compiling; one record each."
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=(DEFAULT_TARGET,),
    show_default=True,
    metavar="TARGET",
    help="Target to run on; may be given several times.",
)
@settings_option
@model_options
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    metavar="DIR",
    help="Directory for the records.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Timed runs; by default as many as fit the budget.")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Warm-up runs, not timed."
)
@click.option(
    "--budget",
    type=Number(min=0),
    default=4.0,
    show_default=True,
    help="Seconds to spend timing a model.",
)
@click.option(
    "--pcc",
    type=Number(max=1),
    default=PCC_THRESHOLD,
    show_default=True,
    help="Required accuracy (PCC).",
)
@click.option("--generate", is_flag=True, help="Time token generation from the example inputs.")
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="With --generate: how many tokens to generate.",
)
@click.option(
    "--quantize", "method", type=click.Choice(["ptq", "dynamic", "weight_only"]),
    help="Quantize each model first, with this method.",
)  # fmt: skip
@click.option(
    "--calibration", metavar="FILE.py::FUNCTION",
    help="With --quantize: a function that returns calibration inputs; required by ptq.",
)  # fmt: skip
@html_option
@click.pass_obj
def bench(
    output: Output,
    models: tuple[str, ...],
    targets: tuple[str, ...],
    settings: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    directory: Path,
    runs: int | None,
    warmup: int,
    budget: float,
    pcc: float,
    generate: bool,
    max_new_tokens: int,
    method: str | None,
    calibration: str | None,
    html_path: Path | None,
) -> int:
    """Time each MODEL before and after compiling it, and write one record each to DIR/bench.

    Times are medians of interleaved runs and never include loading a model. A model that fails affects only
    its own row. Exits with 0 if every row is ok, 1 if one is inaccurate, 2 if one failed. In Python:
    torchport.run_benches.

    \b
    Examples:
      torchport bench torchvision:resnet18 --no-weights
      torchport bench torchvision:resnet18 hf:gpt2 --no-weights --target host --target openvino -o out
      torchport bench torchvision:resnet18 --no-weights -o out --html out/index.html
      torchport bench my_model.py::load --option precision=bfloat16 --pcc 0.999
      torchport bench hf-small-lm:gpt2 hf-small-lm:t5 --generate --runs 3
      torchport bench hf-small:bert --no-weights --quantize dynamic
    """
    _check(method, calibration, generate)
    with output.working("Starting"):
        from torchport.bringup import BenchSettings, run_benches

        options = options_by_target(settings, targets)
    request = ModelRequest(inputs, weights, batch)
    with _progress(output, len(dict.fromkeys(models)) * len(dict.fromkeys(targets))) as progress:
        rows = run_benches(
            models,
            targets=targets,
            directory=directory,
            options=options,
            settings=BenchSettings(
                runs,
                warmup,
                budget,
                pcc,
                max_new_tokens if generate else 0,
                cast('Literal["ptq", "dynamic", "weight_only"] | None', method),
                None if calibration is None else partial(_data, calibration),
            ),
            load=request.load,
            progress=progress,
        )
    if html_path is not None:
        ran = [row.model for row in rows if row.ops_before is not None]
        for analysis in analyses_for_page(output, ran, request):
            analysis.save(directory / "analysis" / file_name(analysis.model).removesuffix(".json"))
        write_page(output, read_report(directory), html_path)
    report = Report(rows)
    output.result(report.to_json(), lambda _: output.text(render_markdown(report)))
    if not output.json:
        output.message(f"records are in {directory}; show them again with `torchport report {directory}`")
    return max(_EXIT_CODES[row.status] for row in rows)


def _check(method: str | None, calibration: str | None, generate: bool) -> None:
    if method is None and calibration is not None:
        raise click.UsageError("--calibration requires --quantize")
    if method == "ptq" and calibration is None:
        raise click.UsageError("--quantize ptq requires --calibration: a function that returns inputs")
    if method is not None and generate:
        raise click.UsageError("--quantize and --generate cannot be combined")


def _data(calibration: str) -> Iterable[object]:
    from torchport import zoo

    return cast("Iterable[object]", zoo.load_value(calibration))


@contextmanager
def _progress(output: Output, total: int) -> Iterator[BenchProgress]:
    """Show a progress bar if stderr is a terminal."""
    from torchport.bringup.benches import Progress as BenchProgress

    if not output.err.is_terminal:
        yield BenchProgress()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=output.err, transient=True) as bar:
        task = bar.add_task("Loading", total=total)

        def show(text: str) -> None:
            bar.update(task, description=text)

        class OnTerminal(BenchProgress):
            def loading(self, model: str) -> None:
                bar.update(task, description=f"Loading {model}")

            def started(self, model: str, target: str) -> None:
                bar.update(task, description=f"{model} on {target}")

            def finished(self, record: BenchRecord) -> None:
                bar.advance(task)

        with showing_choice(output, "the model", show):
            yield OnTerminal()
