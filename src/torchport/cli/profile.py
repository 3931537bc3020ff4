"""`torchport profile`: measures the time of each op on a target, by the engine's own clock."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.cli.profile_view import BY_OP, show_profile
from torchport.cli.target_options import options_of, settings_option, target_option
from torchport.records import Profile, write_text


@click.command(
    cls=Command, epilog=MODEL_FORMS, name="profile", short_help="Measure the time of each op on a target."
)
@click.argument("model")
@target_option
@settings_option
@model_options
@click.option(
    "--by",
    type=click.Choice((BY_OP, "op", "module", "line", "kernel")),
    default=BY_OP,
    show_default=True,
    help="What to sum times by.",
)
@click.option(
    "--rows", type=click.IntRange(min=1), default=30, show_default=True, help="How many rows to show."
)
@click.option(
    "--peak-flops", type=Number(), metavar="N", help="Peak FLOP/s of the roofline; measured if not given."
)
@click.option(
    "--bandwidth", type=Number(), metavar="N", help="Memory bandwidth of the roofline, in bytes per second."
)
@click.option(
    "--chrome-trace",
    "trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a trace for Chrome or Perfetto.",
)
@click.pass_obj
def profile_command(
    output: Output,
    model: str,
    target: str,
    settings: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    by: str,
    rows: int,
    peak_flops: float | None,
    bandwidth: float | None,
    trace: Path | None,
) -> int:
    """Compile MODEL for a target and show how long each of its ops takes there.

    The times are the engine's own, of the kernels that actually ran; ops that stay on the host are timed by
    torch's profiler. Warns of slow reference kernels. Exits with 0, or 2 if it failed. In Python:
    torchport.profile.

    \b
    Examples:
      torchport profile torchvision:resnet18 --no-weights
      torchport profile torchvision:squeezenet1_1 --no-weights --target onnxruntime --by module
      torchport profile hf:gpt2 --no-weights --chrome-trace gpt2.json --json
    """
    if (peak_flops is None) != (bandwidth is None):
        raise click.UsageError("--peak-flops and --bandwidth must be given together")
    with output.working(f"Loading {model}"):
        from torchport.bringup import RooflineLimits, profile

        options = options_of(settings, target)
        loaded = ModelRequest(inputs, weights, batch).load(model)
    limits = None if peak_flops is None or bandwidth is None else RooflineLimits(peak_flops, bandwidth)
    with output.working(f"Profiling {model} on {target}"):
        found = profile(
            loaded.module,
            loaded.args,
            loaded.kwargs,
            target=target,
            options=options,
            roofline=limits,
            name=model,
        )
    if trace is not None:
        write_text(json.dumps(found.chrome_trace()), trace)
        output.message(f"wrote {trace}")
    output.result(found.to_json(), lambda console: _show(found, console, by, rows))
    return exit_codes.FINE


def _show(found: Profile, console: Console, by: str, rows: int) -> None:
    console.print(f"{found.model} on {found.target}", style="bold", markup=False)
    show_profile(found, console, by, rows)
