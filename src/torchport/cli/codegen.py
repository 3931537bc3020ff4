"""`torchport codegen`: writes a model as one Python file and its weights."""

from __future__ import annotations

import click
from rich.console import Console

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.model_options import MODEL_FORMS, model_options
from torchport.cli.output import Output
from torchport.cli.text import seconds
from torchport.records import GeneratedCode


@click.command(cls=Command, epilog=MODEL_FORMS, short_help="Write a model as one readable Python file.")
@click.argument("model")
@click.option(
    "-o", "--output", "code_path", metavar="FILE.py", help="Output file; by default the code is printed."
)
@click.option("--weights", "weights_path", metavar="FILE", help="Weights file: .pth or .safetensors.")
@click.option("--class-name", metavar="NAME", default="", help="Name of the model's class.")
@click.option("--flat", is_flag=True, help="Write one flat class, without classes for submodules.")
@click.option("--shapes", is_flag=True, help="Add result shapes as comments.")
@click.option("--specialize", is_flag=True, help="Specialize data-dependent control flow, with guards.")
@click.option("--meta", is_flag=True, help="Build on the meta device, for models of any size.")
@model_options
@click.pass_obj
def codegen(
    output: Output,
    model: str,
    code_path: str | None,
    weights_path: str | None,
    class_name: str,
    flat: bool,
    shapes: bool,
    specialize: bool,
    meta: bool,
    inputs: str | None,
    weights: bool,
    batch: int | None,
) -> int:
    """Trace MODEL and write it as one Python file that a person could have written, and its weights.

    Before it is written, the file is imported, its weights are loaded, and its results are compared with the
    model's bit for bit. Exits with 0 if it is written, 2 if it failed. In Python:
    torchport.codegen.write_model.

    \b
    Examples:
      torchport codegen torchvision:alexnet --no-weights -o my_alexnet.py
      torchport codegen hf:bert-base-uncased --no-weights -o bert.py --weights bert.safetensors
      torchport codegen hf:meta-llama/Llama-3.1-405B --no-weights --meta
      torchport codegen my_model.py::load --flat --shapes
    """
    with output.working(f"Loading {model}"):
        from torchport import zoo
        from torchport.codegen import write_model

        loaded = zoo.load(
            model, inputs=inputs, weights=weights, batch=batch, device="meta" if meta else "cpu"
        )
    with output.working(f"Writing {model}"):
        found = write_model(
            loaded,
            code_path,
            weights_path=weights_path,
            class_name=class_name,
            hierarchy=not flat,
            shapes=shapes,
            on_data_dependent="specialize" if specialize else "error",
        )
    if code_path is None and not output.json:
        output.text(found.code.rstrip("\n"))
    else:
        output.result(found.to_json(), lambda console: _show(found, console))
    return exit_codes.FINE


def _show(found: GeneratedCode, console: Console) -> None:
    console.print(f"{found.model} as {found.code_path}", style="bold", markup=False)
    rows = {
        "Class": found.class_name,
        "Lines": f"{found.lines}, of which {found.classes} begin a class",
        "Weights": found.weights_path or "none",
        "Calls": str(found.nodes),
        "Traced in": f"{seconds(found.trace_time)}, written in {seconds(found.code_time)}",
    }
    for label, text in rows.items():
        console.print(f"  {label:<10}  {text}", markup=False, highlight=False, soft_wrap=True)
    if found.verified:
        console.print("✅ reproduces the model's results bit for bit")
    else:
        console.print("⚠️ not run: the model has no weights")
