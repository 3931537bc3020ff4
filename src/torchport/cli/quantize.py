"""`torchport quantize`: quantizes a model where that is accurate enough, with a reason for each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.html_option import html_option, write_page
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.cli.target_options import target_option
from torchport.records.quantization import PRECISIONS, LayerReport, QuantizationPlan, QuantizationReport
from torchport.report import Report

_MOST_ROWS = 20


@click.command(
    cls=Command, epilog=MODEL_FORMS, short_help="Quantize a model, layer by layer, within an accuracy budget."
)
@click.argument("model")
@click.option(
    "--calibration",
    metavar="FILE.py::FUNCTION",
    help="A function that returns calibration inputs; required only by ptq.",
)
@click.option(
    "--method", type=click.Choice(["ptq", "dynamic", "weight_only"]), default="ptq",
    show_default=True, help="Ranges from calibration, ranges computed at each call, or weights only.",
)  # fmt: skip
@click.option(
    "--bits", type=click.Choice(["4", "8"]), default="8", show_default=True,
    help="Bits per weight, with --method weight_only.",
)  # fmt: skip
@click.option(
    "--group-size", type=click.IntRange(min=2), default=64, show_default=True,
    help="Inputs per scale, with --bits 4.",
)  # fmt: skip
@click.option(
    "--eval", "evaluate", metavar="FILE.py::FUNCTION", help="A function that returns a model's score."
)  # fmt: skip
@click.option(
    "--max-drop", type=Number(min=0), help="Allowed drop of the --eval score; 0 by default."
)  # fmt: skip
@click.option("--pcc", type=Number(0, 1), help="Without --eval: the PCC that the results must reach.")
@click.option(
    "--keep", multiple=True, metavar="GLOB", help="Keep layers or ops in floating point; may be repeated."
)
@click.option(
    "--half", type=click.Choice(["bfloat16", "float16"]),
    help="Dtype of layers that cannot compute in eight bits; float32 by default.",
)  # fmt: skip
@click.option(
    "--plan", type=click.Path(path_type=Path, dir_okay=False), help="Follow this plan, from --save-plan."
)
@click.option(
    "--save-plan", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan to this file."
)
@click.option(
    "--no-speed", "speed", flag_value=False, default=True, type=bool, help="Skip timing on this machine."
)
@target_option
@model_options
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path),
    help="Compile the quantized model and write it to this file.",
)  # fmt: skip
@html_option
@click.pass_obj
def quantize(
    output: Output,
    model: str,
    calibration: str | None,
    method: str,
    bits: str,
    group_size: int,
    evaluate: str | None,
    max_drop: float | None,
    pcc: float | None,
    keep: tuple[str, ...],
    half: str | None,
    plan: Path | None,
    save_plan: Path | None,
    speed: bool,
    target: str,
    inputs: str | None,
    weights: bool,
    batch: int | None,
    file: Path | None,
    html_path: Path | None,
) -> int:
    """Quantize MODEL: layers compute in eight bits where that is accurate enough and no slower.

    Shows each layer with its precision and reason, those that lose most accuracy first. Exits with 0; with 1
    if every layer stays in floating point; with 2 if it failed or the accuracy cannot be met. In Python:
    torchport.quantize.

    \b
    Examples:
      torchport quantize torchvision:resnet18 --calibration data.py::images -o resnet18.pt2
      torchport quantize model.py::load --calibration data.py::data --eval data.py::score --max-drop 0.5
      torchport quantize model.py::load --method dynamic
      torchport quantize model.py::load --method weight_only --bits 4 --json
      torchport quantize model.py::load --calibration data.py::data --html layers.html
    """
    if method == "ptq" and calibration is None:
        raise click.UsageError("--method ptq requires --calibration: a function that returns inputs")
    if max_drop is not None and evaluate is None:
        raise click.UsageError("--max-drop requires --eval")
    if pcc is not None and evaluate is not None:
        raise click.UsageError("--pcc and --eval cannot be combined: each sets the accuracy budget")
    with output.working(f"Loading {model}"):
        from torchport import zoo
        from torchport.compiler import compile
        from torchport.packaging.save_model import check_package_name, save
        from torchport.quantization import AccuracyBudget, QuantizationOptions, item_of, read_plan
        from torchport.quantization import quantize as quantize_model

        if file is not None:
            check_package_name(file)  # before spending minutes on quantizing
        loaded = ModelRequest(inputs, weights, batch).load(model)
        data = zoo.load_value(calibration) if calibration is not None else ()
        if method == "dynamic" and calibration is None:
            data = [item_of(loaded.module, loaded.args, loaded.kwargs)]
        budget = None
        if evaluate is not None:
            score = cast("Callable[[Any], float]", zoo.load_function(evaluate))
            budget = AccuracyBudget(evaluate=score, max_drop=max_drop or 0.0)
        elif pcc is not None:
            budget = AccuracyBudget(pcc=pcc)
        given = None if plan is None else read_plan(plan)
        options = QuantizationOptions(
            overrides=dict.fromkeys(keep, "float"),
            plan=given,
            half=cast('Literal["bfloat16", "float16"] | None', half),
            bits=4 if bits == "4" else 8,
            group_size=group_size,
        )
    with _progress(output, model) as progress:
        made = quantize_model(
            loaded.module.eval(),
            cast("Iterable[object]", data),
            method=cast('Literal["ptq", "dynamic", "weight_only"]', method),
            target=target,
            accuracy=budget,
            speed=speed,
            options=options,
            name=model,
            progress=progress,
        )
    if save_plan is not None:
        made.save_plan(save_plan)
    if file is not None:
        with output.working(f"Compiling {model} for {target}"):
            save(compile(made, loaded.args, loaded.kwargs, target=target, name=model), file)
    if html_path is not None:
        write_page(output, Report(quantizations=(made.report,)), html_path)
    data_out = {"plan": made.plan.to_json(), "report": made.report.to_json()}
    output.result(data_out, lambda console: _show(made.plan, made.report, console))
    return exit_codes.FINE if made.plan.count("float") < len(made.plan.layers) else exit_codes.FINDING


@contextmanager
def _progress(output: Output, model: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show on a terminal the current step and its progress."""
    if not output.err.is_terminal:
        yield lambda what, done, total: None
        return
    with output.err.status(Text(f"Quantizing {model}")) as status:
        yield lambda what, done, total: status.update(
            Text(f"{what} {model}: {done}" + (f" of {total}" if total else ""))
        )


def _show(plan: QuantizationPlan, report: QuantizationReport, console: Console) -> None:
    console.print(f"{report.model}, {report.method} for {report.target}", style="bold", markup=False)
    counts = [f"{plan.count(precision)} {precision}" for precision in PRECISIONS]
    four = sum(layer.precision == "weight_only" and layer.bits == 4 for layer in plan.layers)
    counts[1] += f" ({four} of them in 4 bits)" if four else ""
    console.print(f"layers    {', '.join(text for text in counts if text[0] != '0')}")
    console.print(f"weights   {report.bytes_float / 2**20:.2f} → {report.bytes / 2**20:.2f} MiB")
    if report.note:
        console.print(f"note      {report.note}", markup=False)
    if report.pcc is not None:
        console.print(f"results   PCC {report.pcc:.5f} on {report.judged_on} held-out items")
    if report.score is not None:
        console.print(f"score     {report.score_float:.4g} → {report.score:.4g}")
    if report.seconds is not None and report.seconds_float is not None:
        console.print(f"per call  {1e3 * report.seconds_float:.3g} → {1e3 * report.seconds:.3g} ms")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for title in ("Layer", "Precision", "Why"):
        table.add_column(title, overflow="fold")
    for title in ("SQNR alone", "SQNR", "Clipped"):
        table.add_column(title, justify="right")
    details = {layer.name: layer.detail for layer in plan.layers}
    for row in report.layers[:_MOST_ROWS]:
        table.add_row(*_cells(row, details[row.name]))
    console.print(table)
    if len(report.layers) > _MOST_ROWS:
        console.print(f"and {len(report.layers) - _MOST_ROWS} more layers; all with --json", style="dim")


def _cells(row: LayerReport, detail: str) -> list[Text]:
    why = row.reason if not detail else f"{row.reason}: {detail}"
    return [
        Text(row.name),
        Text(row.precision),
        Text("" if why == "default" else why),
        Text("-" if row.sqnr_isolated is None else f"{row.sqnr_isolated:.1f} dB"),
        Text("-" if row.sqnr is None else f"{row.sqnr:.1f} dB"),
        Text("-" if row.clipped is None else f"{100 * row.clipped:.2f} %"),
    ]
