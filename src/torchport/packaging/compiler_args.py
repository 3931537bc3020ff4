"""A compiler's command-line arguments → a target's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from torchport.errors import TargetError
from torchport.targets import Target


def read_compiler_args(
    given: Sequence[str] | Mapping[str, object] | None, target: Target
) -> dict[str, object]:
    """Parse compiler arguments into the target's options.

    Args:
        given: `["--threads", "4"]`, `["--threads=4"]`, `["threads=4"]`, or a dict of options. An argument
            without a value, as in `["--check"]`, is a switch. Uppercase names are properties of the target's
            own compiler, if it accepts any: `["--ENABLE_CPU_PINNING", "NO"]`.
        target: the target that the options belong to.

    Raises:
        TargetError: `given` has none of these forms. Unknown names are rejected by `Target.make_options`.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if (
        isinstance(given, str)
        or not isinstance(given, Iterable)
        or not all(isinstance(argument, str) for argument in given)
    ):
        raise TargetError(
            f"compiler_args must be a list of strings or a dict, not {given!r}",
            remedy='as in ["--threads", "4"]',
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
    """Remove an argument and its value from the front of the list, and return them."""
    first = arguments.pop(0)
    key, equals, value = first.partition("=")
    if not equals:
        if not key.startswith("-"):
            raise TargetError(
                f"compiler_args has the value {first!r} without a name", remedy='as in ["--threads", "4"]'
            )
        value = arguments.pop(0) if arguments and not arguments[0].startswith("--") else "true"
    return key.lstrip("-"), value
