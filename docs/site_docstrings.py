"""Makes the reference show docstring examples as code: mkdocstrings does not recognize `Example:`."""

from __future__ import annotations

import re

import griffe


class ExampleSections(griffe.Extension):
    """Renames `Example:` sections to the name that mkdocstrings recognizes."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rename the section in an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
