"""Has the reference show the examples of docstrings as code: mkdocstrings does not know `Example:`."""

from __future__ import annotations

import re

import griffe


class ExampleSections(griffe.Extension):
    """Calls the section what mkdocstrings calls it."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rename the section in an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
