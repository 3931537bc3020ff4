"""A compiler's command-line arguments → a target's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from torchport.errors import TargetError
from torchport.targets import Target


def read_compiler_args(
    given: Sequence[str] | Mapping[str, object] | None, target: Target
) -> dict[str, object]:
    """Return the target's options for arguments.

    Args:
        given: `["--threads", "4"]`, `["--threads=4"]`, `["threads=4"]`, or a dict of options. An argument
            alone, as `["--check"]`, is a switch. Names in capitals are properties of the target's own
            compiler, if it takes such: `["--ENABLE_CPU_PINNING", "NO"]`.
        target: whose they are.

    Raises:
        TargetError: it has none of these forms. Unknown names are refused by `Target.make_options`.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str) or not all(isinstance(argument, str) for argument in given):
        raise TargetError(
            f"compiler_args is a list of texts or a dict, not {given!r}", remedy='as in ["--threads", "4"]'
        )
    options: dict[str, object] = {}
    properties: dict[str, object] = {}
    takes_properties = "config" in {field.name for field in dataclasses.fields(target.options_type)}
    arguments = list(given)
    while arguments:
        key, value = _take_one(arguments)
        if takes_properties and key.isupper():
            properties[key] = value
        else:
            options[key.replace("-", "_")] = value
    return options | ({"config": properties} if properties else {})


def _take_one(arguments: list[str]) -> tuple[str, str]:
    """Take an argument and its value off the list."""
    first = arguments.pop(0)
    key, equals, value = first.partition("=")
    if not equals:
        if not key.startswith("-"):
            raise TargetError(
                f"compiler_args has the value {first!r} without a name", remedy='as in ["--threads", "4"]'
            )
        value = arguments.pop(0) if arguments and not arguments[0].startswith("--") else "true"
    return key.lstrip("-"), value
