"""`torchport compile`: brings a model up on a target and compares it with eager torch."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from torchport.cli import exit_codes
from torchport.cli.choice_view import show_tries, showing_choice
from torchport.cli.command import Command
from torchport.cli.comparison_view import show_comparison
from torchport.cli.coverage_view import show_coverage
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.cli.target_options import options_of, settings_option, target_option
from torchport.cli.text import count, seconds
from torchport.records import EAGER, BringUp


@click.command(
    cls=Command,
    epilog=MODEL_FORMS,
    name="compile",
    short_help="Compile a model and verify it against eager torch.",
)
@click.argument("model")
@target_option
@settings_option
@model_options
@click.option(
    "--rtol",
    type=Number(min=0),
    help="Allowed relative error, instead of the dtype's default.",
)
@click.option("--atol", type=Number(min=0), help="Allowed absolute error; 0 if only --rtol is given.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Write the compiled model to this file: .pt2 or .pt.",
)
@click.option("--with-graph", is_flag=True, help="Also store the model's graph, for other shapes and values.")
@click.option("--separate-weights", is_flag=True, help="Store the weights in a safetensors file next to it.")
@click.option(
    "--no-compiled-form",
    "compiled_form",
    flag_value=False,
    type=bool,
    default=True,
    help="Omit the device's compiled form; the model is recompiled when loaded.",
)
@click.option(
    "--emit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the target's program to this file, with its weights next to it (ttnn only).",
)
@click.pass_obj
def compile_command(
    output: Output,
    model: str,
    target: str,
    settings: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    rtol: float | None,
    atol: float | None,
    file: Path | None,
    with_graph: bool,
    separate_weights: bool,
    compiled_form: bool,
    emit: Path | None,
) -> int:
    """Compile MODEL for a target, run it, and compare its results with eager torch.

    Exits with 0 if all ops run on the target with correct results, 1 if an op stays on the host or a result
    is inaccurate, 2 if it failed. In Python: torchport.bringup.bring_up.

    \b
    Examples:
      torchport compile torchvision:resnet18 --no-weights
      torchport compile hf:bert-base-uncased --no-weights --target host
      torchport compile torchvision:resnet18 --no-weights --target auto
      torchport compile torchvision:resnet18 --no-weights -o resnet18.pt2
      torchport compile torchvision:resnet18 --no-weights -o resnet18.pt2 --with-graph --separate-weights
      torchport compile torchvision:resnet50 --option precision=bfloat16 --rtol 0.05 --atol 0.05
      torchport compile torchvision:resnet18 --no-weights --target ttnn --emit program.py
    """
    contents = {
        "compiled_form": compiled_form,
        "with_graph": with_graph,
        "separate_weights": separate_weights,
    }
    if file is None and (with_graph or separate_weights or not compiled_form):
        raise click.UsageError("--with-graph, --separate-weights and --no-compiled-form require -o FILE")
    with output.working(f"Loading {model}"):
        from torchport.bringup import bring_up
        from torchport.packaging.write_file import FileContents
        from torchport.verification import Tolerance

        options = options_of(settings, target)
        loaded = ModelRequest(inputs, weights, batch).load(model)
    tolerance = None if rtol is None and atol is None else Tolerance(rtol or 0.0, atol or 0.0)
    with (
        output.working(f"Compiling {model} for {target}") as show,
        showing_choice(output, model, show),
    ):
        found = bring_up(
            loaded,
            target=target,
            options=options,
            tolerance=tolerance,
            output=file,
            contents=FileContents(**contents),
            emit=emit,
        )
    output.result(found.to_json(), lambda console: _show(found, console))
    no_gain = found.tries is not None and found.tries.chosen == EAGER  # not a finding
    good = found.comparison.ok and (found.coverage.complete or no_gain)
    return exit_codes.FINE if good else exit_codes.FINDING


def _show(found: BringUp, console: Console) -> None:
    console.print(f"{found.model} on {found.target}", style="bold", markup=False)
    trial = f" (speed trial {seconds(found.speed_trial_time)})" if found.speed_trial_time else ""
    times = f"{seconds(found.compile_time)}{trial}, first call {seconds(found.first_call_time)}"
    facts = {"Compiled in": times}
    if found.simulated_time is not None:
        facts["Simulated"] = f"no device here; estimated {seconds(found.simulated_time)} per call on one"
    show_coverage(found.coverage, console, facts)
    console.print()
    if found.tries is not None:
        show_tries(found.tries, console)
        console.print()
    show_comparison(found.comparison, console)
    console.print(_verdict(found))


def _verdict(found: BringUp) -> str:
    wrong = sum(not row.ok for row in found.comparison.outputs)
    if wrong:
        return f"❌ {count(wrong, 'output')} of {len(found.comparison.outputs)} differ from eager torch"
    if found.tries is not None and found.tries.chosen == EAGER:
        return "✅ matches eager torch, which is best here: no engine improves on it"
    if not found.coverage.complete:
        stay = "stays" if found.coverage.ops_remain == 1 else "stay"
        return f"❌ matches eager torch, but {count(found.coverage.ops_remain, 'op')} {stay} on the host"
    return f"✅ matches eager torch, all of it on {found.coverage.target}"
