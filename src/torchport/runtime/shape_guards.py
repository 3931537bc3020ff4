"""Guards on input sizes for a program with open sizes, as data; see `size_terms.py`."""

from __future__ import annotations

from collections.abc import Sequence

from torchport.errors import RuntimeRefusal
from torchport.targets.size_terms import evaluate


def check_guards(guards: object, shapes: Sequence[Sequence[int]], where: str) -> None:
    """Refuse inputs for which a guard does not hold.

    Args:
        guards: a list of terms.
        shapes: the inputs' sizes.
        where: the name of the model or island, for the message.

    Raises:
        RuntimeRefusal: a guard fails; names it.
    """
    for guard in guards if isinstance(guards, list) else [["!=", 0, 0]]:
        if not holds(guard, shapes):
            raise RuntimeRefusal(
                f"the inputs have the shapes {[list(shape) for shape in shapes]}, but the model was captured "
                f"for shapes with {render(_failing(guard, shapes))}",
                where=where,
                remedy="compile the model for inputs of this shape",
            )


def _failing(guard: object, shapes: Sequence[Sequence[int]]) -> object:
    """Return the part of a guard that makes it fail; of alternatives, the last one's."""
    if isinstance(guard, list) and guard[:1] == ["or"]:
        return _failing(guard[-1], shapes)
    if isinstance(guard, list) and guard[:1] == ["and"]:
        return next((_failing(part, shapes) for part in guard[1:] if not holds(part, shapes)), guard)
    return guard


def holds(guard: object, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether a guard holds.

    Raises:
        RuntimeRefusal: the guard is malformed.
    """
    try:
        return bool(evaluate(guard, shapes))
    except ZeroDivisionError:
        return False
    except (TypeError, ValueError, IndexError) as error:  # a file's guard may be anything
        raise RuntimeRefusal(f"{str(guard)[:80]!r} is not a valid guard") from error


def render(term: object) -> str:
    """Format a term for a message, in infix notation."""
    if not isinstance(term, list):
        return str(term)
    head, *rest = term
    if head == "size":
        return f"size {rest[1]} of tensor {rest[0]}"
    if len(rest) == 2 and head not in ("max", "min"):
        left, right = (f"({render(part)})" if _is_operation(part) else render(part) for part in rest)
        return f"{left} {head} {right}"
    return f"{head}({', '.join(map(render, rest))})"


def _is_operation(term: object) -> bool:
    return isinstance(term, list) and term[0] != "size"
