"""`torchport analyze`: a model's modules and ops, and the cost of one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from torchport.cli import exit_codes
from torchport.cli.analysis_view import show_analyses
from torchport.cli.command import Command
from torchport.cli.generation_cost_view import show_generation_costs
from torchport.cli.html_option import html_option, write_page
from torchport.cli.model_analysis import analyze_named
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.records import JSON, Analysis, OpConfigurations, Roofline, file_name, json_text, write_texts
from torchport.report import Report

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The output files that were requested."""

    directory: Path | None
    configurations: Path | None
    model_explorer: Path | None


@click.command(
    cls=Command, epilog=MODEL_FORMS, short_help="Show a model's modules and ops, and what they cost."
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@model_options
@click.option("--backward", is_flag=True, help="Also count the backward pass.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Output directory; ./<ModelClassName>/ by default.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="How many levels of the module tree to show.",
)
@click.option(
    "--configurations", type=_FILE, metavar="FILE", help="Also write every op configuration, as JSON or CSV."
)
@click.option("--model-explorer", type=_FILE, metavar="FILE", help="Also write the graph for Model Explorer.")
@click.option(
    "--peak-flops", type=Number(), metavar="N", help="Peak FLOP/s of a device, for a roofline estimate."
)
@click.option(
    "--bandwidth", type=Number(), metavar="N", help="Memory bandwidth of that device, in bytes per second."
)
@click.option(
    "--generate",
    is_flag=True,
    help="Cost of generation: the prompt, a decoding step, the KV cache; writes no files.",
)
@click.option(
    "--length",
    type=click.IntRange(min=1),
    default=2048,
    show_default=True,
    help="With --generate: tokens in the prompt, and in the KV cache at the step.",
)
@html_option
@click.pass_obj
def analyze(
    output: Output,
    models: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    backward: bool,
    directory: Path | None,
    depth: int,
    configurations: Path | None,
    model_explorer: Path | None,
    peak_flops: float | None,
    bandwidth: float | None,
    generate: bool,
    length: int,
    html_path: Path | None,
) -> int:
    """Show MODEL's modules and ops, and the cost of one run.

    Writes unique_modules.json, pytorch_ops.json and cost.json. A library model is built without weights;
    they are loaded only if its control flow depends on tensor values. With several models, each gets its own
    folder in DIR.
    In Python: torchport.analyze or, for --generate, torchport.analyze_generation.

    \b
    Examples:
      torchport analyze torchvision:resnet18
      torchport analyze my_model.py::load_model --inputs my_model.py::get_inputs --dir out
      torchport analyze hf:gpt2 --backward --json
      torchport analyze torchvision:resnet50 --html resnet50.html
      torchport analyze torchvision:resnet18 timm:vit_tiny_patch16_224 --configurations ops.csv
      torchport analyze hf:llama-3.1-405b --generate --length 4096 --peak-flops 1e15 --bandwidth 3e12
    """
    if (peak_flops is None) != (bandwidth is None):
        raise click.UsageError("--peak-flops and --bandwidth must be given together")
    if model_explorer is not None and len(models) > 1:
        raise click.UsageError("--model-explorer takes one model")
    request = ModelRequest(inputs, weights, batch)
    if generate:
        return _analyze_generation(output, models, request, length, (peak_flops, bandwidth))
    analyses = [analyze_named(output, name, request, backward=backward) for name in models]
    estimates = []
    if peak_flops is not None and bandwidth is not None:
        estimates = [analysis.cost.roofline(peak_flops, bandwidth) for analysis in analyses]
    table = _write(output, analyses, _Wanted(directory, configurations, model_explorer))
    if html_path is not None:
        write_page(output, Report(analyses=tuple(analyses)), html_path)
    output.result(
        _json(analyses, estimates),
        lambda console: show_analyses(analyses, table, estimates, console, depth),
    )
    return exit_codes.FINE


def _analyze_generation(
    output: Output,
    models: tuple[str, ...],
    request: ModelRequest,
    length: int,
    device: tuple[float | None, float | None],
) -> int:
    found = []
    for name in models:
        with output.working(f"Analyzing {name}"):
            from torchport.generation import analyze_generation

            loaded = request.load(name, without_values=True)
            found.append(
                analyze_generation(
                    loaded.module,
                    length=length,
                    batch=request.batch or 1,
                    peak_flops=device[0],
                    bandwidth=device[1],
                    name=name,
                )
            )
    documents: list[JSON] = [cost.to_json() for cost in found]
    output.result(
        documents[0] if len(documents) == 1 else documents,
        lambda console: show_generation_costs(found, console),
    )
    return exit_codes.FINE


def _write(output: Output, analyses: list[Analysis], wanted: _Wanted) -> OpConfigurations:
    """Write every requested file, or none."""
    from torchport.analysis import configurations_csv, model_explorer_files, op_configurations

    table = op_configurations(analyses)
    texts: dict[Path, str] = {}
    for analysis in analyses:
        folder = wanted.directory or Path(analysis.cost.model_class)
        if len(analyses) > 1:
            folder = (wanted.directory or Path()) / file_name(analysis.model).removesuffix(".json")
        texts |= analysis.files(folder)
    if wanted.configurations is not None:
        as_csv = wanted.configurations.suffix == ".csv"
        texts[wanted.configurations] = configurations_csv(table) if as_csv else json_text(table)
    if wanted.model_explorer is not None:
        texts |= model_explorer_files(analyses[0], wanted.model_explorer)
    write_texts(texts)
    for path in texts:
        output.message(f"wrote {path}")
    return table


def _json(analyses: list[Analysis], estimates: list[Roofline]) -> JSON:
    documents = [analysis.to_json() for analysis in analyses]
    for document, estimate in zip(documents, estimates, strict=False):
        document["roofline"] = estimate.to_json()
    return documents[0] if len(documents) == 1 else documents
