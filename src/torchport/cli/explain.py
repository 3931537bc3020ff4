"""`torchport explain`: shows which ops of a model a target supports, without building anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.coverage_view import show_coverage
from torchport.cli.html_option import html_option, write_page
from torchport.cli.model_analysis import analyses_for_page
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.output import Output
from torchport.cli.profile_view import show_profile
from torchport.cli.target_options import options_of, settings_option, target_option
from torchport.cli.text import count
from torchport.records import Coverage, GenerationCoverage, Profile
from torchport.report import Report

if TYPE_CHECKING:
    import torch

    from torchport.zoo import Model


@click.command(
    cls=Command,
    epilog=MODEL_FORMS,
    short_help="Show which ops of a model a target supports, and why not the rest.",
)
@click.argument("model")
@target_option
@settings_option
@model_options
@click.option("--measure", is_flag=True, help="Also compile and run it, and show each op's kernel and time.")
@click.option(
    "--generate",
    is_flag=True,
    help="Explain the graphs used for generation: a prompt chunk, and a decoding step.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=4),
    help="With --generate: maximum tokens in a sequence; 512 by default.",
)
@html_option
@click.pass_obj
def explain(
    output: Output,
    model: str,
    target: str,
    settings: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    measure: bool,
    generate: bool,
    max_length: int | None,
    html_path: Path | None,
) -> int:
    """Show which ops of MODEL would run on a target, and why the rest would stay on the host.

    Without --measure, nothing is built and no device is needed. Exits with 0 if everything is covered, 1 if
    an op stays on the host, 2 if it failed. In Python: torchport.explain or, for --generate,
    torchport.explain_generation.

    \b
    Examples:
      torchport explain torchvision:resnet18 --no-weights
      torchport explain hf:gpt2 --no-weights --target openvino --json
      torchport explain my_model.py::load --inputs my_model.py::inputs
      torchport explain hf:gpt2 --no-weights --html gpt2.html
      torchport explain torchvision:squeezenet1_1 --no-weights --measure
      torchport explain hf:gpt2 --no-weights --generate --target ttnn
      torchport explain my_whisper.py::load --inputs my_whisper.py::sounds --generate
    """
    if generate and (measure or html_path is not None):
        raise click.UsageError("--generate cannot be combined with --measure or --html")
    if max_length is not None and not generate:
        raise click.UsageError("--max-length requires --generate")
    if generate:
        request = ModelRequest(inputs, weights, batch)
        return _explain_generation(output, model, request, target, settings, max_length)
    with output.working(f"Loading {model}"):
        from torchport.compiler.explain_model import explain_graph

        options = options_of(settings, target)
        request = ModelRequest(inputs, weights, batch)
        loaded = request.load(model)
    with output.working(f"Explaining {model} on {target}"):
        coverage, graph = explain_graph(
            loaded.module, loaded.args, loaded.kwargs, target=target, options=options, name=model
        )
    measured = _measure(output, loaded, model, target, options) if measure else None
    if html_path is not None:
        analyses = analyses_for_page(output, [model], request)
        profiles = () if measured is None else (measured,)
        report = Report(coverages=(coverage,), analyses=analyses, graphs=(graph,), profiles=profiles)
        write_page(output, report, html_path)
    data = coverage.to_json() | ({} if measured is None else {"profile": measured.to_json()})
    output.result(data, lambda console: _show(coverage, measured, console))
    return exit_codes.FINE if coverage.complete else exit_codes.FINDING


def _explain_generation(
    output: Output,
    model: str,
    request: ModelRequest,
    target: str,
    settings: tuple[str, ...],
    max_length: int | None,
) -> int:
    with output.working(f"Explaining {model} on {target}"):
        from torchport.compiler.explain_generation import explain_generation

        options = options_of(settings, target)
        loaded = request.load(model)
        found = explain_generation(
            loaded.module,
            target=target,
            options=options,
            prompt=_prompt_of(loaded),
            max_length=max_length,
            name=model,
        )
    output.result(found.to_json(), lambda console: _show_calls(found, console))
    return exit_codes.FINE if found.complete else exit_codes.FINDING


def _prompt_of(loaded: Model) -> dict[str, torch.Tensor] | None:
    """Return an audio or image encoder's input from the model's own inputs; None if it takes tokens."""
    import torch

    name = getattr(loaded.module, "main_input_name", "input_ids")
    given = loaded.kwargs.get(name, loaded.args[0] if loaded.args else None)
    return {name: given} if name != "input_ids" and isinstance(given, torch.Tensor) else None


def _show_calls(found: GenerationCoverage, console: Console) -> None:
    for place, coverage in enumerate(found.calls.values()):
        if place:
            console.print()
        _show(coverage, None, console)


def _measure(output: Output, loaded: Model, model: str, target: str, options: dict[str, object]) -> Profile:
    with output.working(f"Profiling {model} on {target}"):
        from torchport.bringup import profile

        return profile(loaded.module, loaded.args, loaded.kwargs, target=target, options=options, name=model)


def _show(coverage: Coverage, measured: Profile | None, console: Console) -> None:
    console.print(f"{coverage.model} on {coverage.target}", style="bold", markup=False)
    show_coverage(coverage, console)
    if measured is not None:
        console.print()
        show_profile(measured, console)
    if coverage.complete:
        console.print(f"\n✅ {coverage.target} supports all of it")
    else:
        stay = "stays" if coverage.ops_remain == 1 else "stay"
        console.print(f"\n❌ {count(coverage.ops_remain, 'op')} {stay} on the host")
