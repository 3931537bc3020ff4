"""`torchport inspect`: shows what is in a compiled model's file, without running any of it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.choice_view import show_tries
from torchport.cli.command import Command
from torchport.cli.coverage_view import facts_table, show_coverage
from torchport.cli.output import Output
from torchport.cli.text import count, printable_json, quantity
from torchport.records import ITEM_SIZES, GenerationForm, PackageSummary


@click.command(cls=Command, short_help="Show what is in a compiled model's file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def inspect(output: Output, file: Path) -> int:
    """Show what is in FILE (.pt2 or .pt): what built it, for which inputs and device. Runs nothing in it.

    Exits with 0, or 2 if it is damaged or not a compiled model. In Python: torchport.inspect_package.

    \b
    Examples:
      torchport inspect resnet18.pt2
      torchport inspect resnet18.pt --json
    """
    with output.working(f"Reading {file}"):
        from torchport.packaging.inspect_file import inspect_package

        found = PackageSummary.from_json(printable_json(inspect_package(file).to_json()))
    output.result(found.to_json(), lambda console: _show(found, console))
    return exit_codes.FINE


def _show(found: PackageSummary, console: Console) -> None:
    console.print(f"{found.model} on {found.target}", style="bold", markup=False)
    facts = facts_table()
    kind = {"pt2": "torch.export archive", "pt": "TorchScript"}[found.format]
    facts.add_row("File", Text(f"{kind}, {quantity(found.bytes, 'B', base=1024)}"))
    built = ", ".join(f"{name} {version}" for name, version in found.versions.items() if version)
    facts.add_row("Built by", Text(built))
    facts.add_row("Options", Text(", ".join(f"{key}={value}" for key, value in _options(found))))
    facts.add_row("Compiled form", Text(_compiled_forms(found)))
    facts.add_row("Programs", count(len(found.programs), "program"))
    if found.generation is not None:
        facts.add_row("Generates", Text(_generation(found.generation)))
    console.print(facts)
    if found.tries is not None:
        console.print()
        show_tries(found.tries, console)
    for record in found.programs:
        given = ", ".join(f"{path} {spec}" for path, spec in record.inputs.items())
        gives = ", ".join(f"{path} {spec}" for path, spec in record.outputs.items())
        console.print()
        console.print(Text(f"{given}  →  {gives}"))
        if record.mutated:
            console.print(Text(f"writes {', '.join(record.mutated)}"))
        show_coverage(record.coverage, console)


def _generation(form: GenerationForm) -> str:
    """Describe how the model generates: length, prompt chunks, KV cache."""
    size = form.cache_elements() * ITEM_SIZES.get(form.dtype, 0)
    cache = f", KV cache of {quantity(size, 'B', base=1024)} per sequence ({form.dtype})" if size else ""
    alone = "" if form.library_only else "; prefill and step without transformers"
    return f"up to {count(form.max_length, 'token')}, prompts in chunks of {form.width}{cache}{alone}"


def _options(found: PackageSummary) -> list[tuple[str, object]]:
    options = found.programs[0].options
    return [(key, value) for key, value in options.items() if value not in ([], {}, 0, "")]


def _compiled_forms(found: PackageSummary) -> str:
    """Say how many islands hold the device's own compiled form, and for which device."""
    islands = [island for record in found.programs for island in record.islands]
    forms = [island.properties.get("compiled") for island in islands]
    made = [form for form in forms if isinstance(form, dict)]
    if not made:
        return "none: loading compiles the portable form"
    sizes = [form.get("bytes") for form in made]
    size = quantity(sum(n for n in sizes if isinstance(n, int) and 0 <= n < 2**63), "B", base=1024)
    device = made[0].get("made_for")
    name = device.get("name") if isinstance(device, dict) else "a device without a name"
    return f"of {len(made)} of {count(len(islands), 'island')}, {size}, for {name}"
