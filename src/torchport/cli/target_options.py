"""Target options shared by commands: `--target` and `--option KEY=VALUE`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from torchport.errors import TargetError, nearest
from torchport.records import DEFAULT_TARGET

Function = TypeVar("Function", bound=Callable[..., object])


def target_option(function: Function) -> Function:
    """Add `--target`, which may be given once."""
    option = click.option(
        "--target", default=DEFAULT_TARGET, show_default=True, metavar="TARGET", help="Target to run on."
    )
    return option(function)


def settings_option(function: Function) -> Function:
    """Add `--option KEY=VALUE`, which may be given any number of times."""
    option = click.option(
        "--option",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the target, such as precision=bfloat16. `torchport targets` lists them.",
    )
    return option(function)


def options_of(settings: Sequence[str], target: str) -> dict[str, object]:
    """Return the validated `--option` values for one target.

    Raises:
        TargetError: the target is unknown, or has no such option; suggests the nearest name.
    """
    return options_by_target(settings, [target])[target]


def options_by_target(settings: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the validated `--option` values for each of several targets; each gets the options that it has.

    Raises:
        TargetError: a target is unknown, or no target has such an option; suggests the nearest name.
    """
    from torchport import targets  # imported late, since it imports torch

    known = {
        name: {field.name for field in dataclasses.fields(targets.find(name).options_type)} for name in names
    }
    given = split_settings(settings)
    everything = set().union(*known.values())
    for key in given:
        if key not in everything:
            raise TargetError(
                f"no option {key!r}", where=", ".join(known), remedy=nearest(key, sorted(everything))
            )
    chosen = {name: {key: given[key] for key in given if key in known[name]} for name in known}
    for name, options in chosen.items():
        targets.find(name).make_options(options)
    return chosen


def split_settings(settings: Sequence[str]) -> dict[str, object]:
    """Parse `KEY=VALUE` settings into a dict; a value in braces is parsed as JSON.

    Raises:
        click.UsageError: a setting has no key, no `=`, or a value in braces that is not JSON.
    """
    given: dict[str, object] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise click.UsageError(f"--option takes KEY=VALUE, not {setting!r}")
        try:
            given[key] = json.loads(value) if value.startswith("{") else value
        except ValueError as error:
            raise click.UsageError(f"--option {key}: the value is not valid JSON: {error}") from error
    return given
