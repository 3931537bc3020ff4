"""`torchport generate`: generates text with a language model on a target, streaming tokens."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.model_options import MODEL_FORMS, ModelRequest, model_options
from torchport.cli.output import Output
from torchport.cli.target_options import options_of, settings_option, target_option
from torchport.cli.terminal import printable
from torchport.cli.text import count
from torchport.records import GenerationRun

# Parameters that apply only where a model is compiled.
_MODEL_ONLY = ("target", "settings", "inputs", "weights", "batch", "max_length", "file", "compare")


@click.command(
    cls=Command, epilog=MODEL_FORMS, short_help="Generate text with a model on a target, and time it."
)
@click.argument("model")
@click.option("--prompt", required=True, metavar="TEXT", help='Text, or token ids: "5 17 3".')
@target_option
@settings_option
@model_options
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="How many tokens to generate.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=1),
    help="Maximum sequence length to build for; by default, this prompt plus the new tokens.",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Write the compiled model to this .pt2 file, which can then be given as MODEL.",
)
@click.option("--compare", is_flag=True, help="Also generate with eager torch; compare tokens and times.")
@click.pass_context
def generate(
    context: click.Context,
    model: str,
    prompt: str,
    target: str,
    settings: tuple[str, ...],
    inputs: str | None,
    weights: bool,
    batch: int | None,
    max_new_tokens: int,
    max_length: int | None,
    file: Path | None,
    compare: bool,
) -> int:
    """Generate from a prompt with MODEL on a target, by greedy decoding, printing tokens as they come.

    MODEL may also be a file that -o wrote: nothing is built, and target and length are the file's. Reports
    the time to the first token, tokens per second, what was built, and the memory used. Exits with 0; with 1
    if --compare finds a different token; with 2 if it failed. In Python: torchport.run_generation.

    \b
    Examples:
      torchport generate hf:gpt2 --prompt "Once upon a time"
      torchport generate hf:gpt2 --no-weights --prompt "464 2068 7586" --compare
      torchport generate my_model.py::load --prompt "5 17 3" --target host --max-new-tokens 8 --json
      torchport generate hf:gpt2 --prompt "Once upon a time" --max-length 256 -o gpt2.pt2
      torchport generate gpt2.pt2 --prompt "Twice"
    """
    output: Output = context.obj
    with output.working(f"Loading {model}"):
        from torchport.bringup import run_generation

        options = options_of(settings, target)
        request = ModelRequest(inputs, weights, batch)
        loaded = _file(model, context) or request.load(model)
    run = run_generation(
        loaded,
        prompt,
        target=target,
        options=options,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        compare=compare,
        output=file,
        on_text=None if output.json else lambda text: _say(output.out, text),
    )
    output.result(run.to_json(), lambda console: _show(run, console))
    differs = run.same_tokens is not None and run.same_tokens < len(run.tokens)
    return exit_codes.FINDING if differs else exit_codes.FINE


def _file(model: str, context: click.Context) -> Path | None:
    """Return the path if the model is a compiled file, whose options can no longer be chosen; else None."""
    if not model.endswith(".pt2"):
        return None
    for parameter in context.command.params:
        if parameter.name in _MODEL_ONLY and (
            context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ):
            option = max((*parameter.opts, *parameter.secondary_opts), key=len)
            raise click.UsageError(f"{model} is already compiled: {option} applies only to a model")
    return Path(model)


def _say(console: Console, text: str) -> None:
    console.file.write(printable(text))
    console.file.flush()


def _show(run: GenerationRun, console: Console) -> None:
    rate = run.speed.tokens_per_second
    lines = [
        f"first token     {run.speed.first_token_time * 1000:.0f} ms",
        f"tokens/second   {rate:.1f}" if rate else "tokens/second   -",
        f"builds          {run.builds}, {run.build_time:.1f} s"
        if run.builds
        else f"loaded          {run.build_time:.1f} s",
        f"peak memory     {run.memory / 2**20:,.0f} MiB" if run.memory else "peak memory     unknown",
    ]
    if run.original is not None:
        eager = run.original.tokens_per_second
        lines.append(f"eager torch     {eager:.1f} tokens/second" if eager else "eager torch     -")
        lines.append(f"same tokens     {run.same_tokens} of {len(run.tokens)}")
    if run.fallbacks is not None and run.fallbacks.fallbacks:
        lines.append(f"fallbacks       {run.fallbacks}")
    console.print("\n\n" + f"{run.model} on {run.target}: {count(len(run.tokens), 'token')}", markup=False)
    console.print("\n".join(lines), markup=False)
