"""What a graph that holds for some values only calls to say so."""

from __future__ import annotations

from torchport.errors import RuntimeRefusal


def hold(actual: object, expected: object, line: str) -> None:
    """Raise unless a value is the one that the graph was traced with.

    Args:
        actual: the value.
        expected: the value while tracing.
        line: the user's line that asked for it.

    Raises:
        RuntimeRefusal: it is another one.
    """
    if actual != expected:
        raise RuntimeRefusal(
            f"traced with {expected!r}, but called with {actual!r}",
            where=line,
            remedy="trace the model again with these inputs",
        )
