"""Finds the sizes for which a graph is valid, with a second run on inputs of other sizes.

Whatever both runs do alike is valid for other sizes. A comparison of a size that differs is guarded. Where
the second run diverges, or an untracked number differs, the graph is specialized to the sizes at fault.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from torchport.capture.calls.call_inputs import Argument
from torchport.capture.calls.graph_functions import hold
from torchport.capture.calls.recorder import Recorder, SizeComparison
from torchport.capture.calls.tracked_numbers import Tracked, plain
from torchport.capture.calls.varied_inputs import Size, input_sizes, with_other_sizes

Run: TypeAlias = "Callable[[list[Argument]], Recorder]"


def guard_sizes(recorder: Recorder, arguments: Sequence[Argument], run: Run) -> tuple[Size, ...]:
    """Run a model on other sizes, and add guards to its graph for whatever does not hold for them.

    Returns:
        The sizes that may vary.
    """
    free: list[Size] = []
    fixed: dict[Size, str] = {}  # the sizes to specialize, with the source line that requires it
    sizes = input_sizes(arguments)
    second = _try(arguments, sizes, run)
    if second is None or first_difference(recorder, second) is not None:
        second = None
        for size in sizes:
            alone = _try(arguments, [size], run)
            if alone is None:
                continue
            difference = first_difference(recorder, alone)
            if difference is None:
                free.append(size)
            else:
                fixed[size] = difference
        if free:
            second = _try(arguments, free, run)
    else:
        free = sizes
    if second is not None and first_difference(recorder, second) is None:
        _guard_answers(recorder, second)
    _fix(recorder, fixed)
    return tuple(free)


def _try(arguments: Sequence[Argument], sizes: Sequence[Size], run: Run) -> Recorder | None:
    """Run with other sizes; None if the model does not accept them."""
    if not sizes:
        return None
    try:
        return run(with_other_sizes(arguments, sizes))
    except Exception:  # noqa: BLE001  # a model may refuse other sizes in any way
        return None


def first_difference(first: Recorder, second: Recorder) -> str | None:
    """Return the source line at which two runs diverge; None if they do not."""
    ours, theirs = list(first.graph.nodes), list(second.graph.nodes)
    place = {node: index for index, node in enumerate(ours)}
    other_place = {node: index for index, node in enumerate(theirs)}
    for mine, other in zip(ours, theirs, strict=False):
        if mine.op != other.op or mine.target != other.target:
            return _line(mine)
        if _constants(mine, place) != _constants(other, other_place):
            return _line(mine)
    return None if len(ours) == len(theirs) else _line(ours[-1])


def _constants(node: fx.Node, place: dict[fx.Node, int]) -> object:
    """Return a node's arguments with nodes replaced by their positions."""
    return _comparable((node.args, tuple(node.kwargs.items())), place)


def _comparable(value: object, place: dict[fx.Node, int]) -> object:
    if isinstance(value, fx.Node):
        return ("node", place[value])
    if isinstance(value, (list, tuple)):
        return tuple(_comparable(item, place) for item in value)
    if isinstance(value, dict):
        return tuple((key, _comparable(item, place)) for key, item in value.items())
    if isinstance(value, slice):
        return tuple(_comparable(part, place) for part in (value.start, value.stop, value.step))
    if isinstance(value, float) and value != value:
        return "nan"
    return value


def _line(node: fx.Node) -> str:
    trace = str(node.meta.get("stack_trace", ""))
    if not trace.startswith('File "'):
        return ""
    file, line, function = trace.removeprefix('File "').split(", ", 2)
    name = file.rstrip('"').replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line.removeprefix('line ')} {function}"


def _guard_answers(recorder: Recorder, second: Recorder) -> None:
    """Add guards for the comparisons whose answers may differ for other sizes."""
    seen: set[object] = set()
    for mine, other in zip(recorder.comparisons, second.comparisons, strict=False):
        values, others = _sources(mine.args), _sources(other.args)
        key = (mine.place.call, mine.target, str(values), str(others))
        if values == others or mine.answer != other.answer or key in seen:
            continue
        if _holds_for_all_sizes(mine) or _is_same(*mine.args):
            continue
        seen.add(key)
        _add_guard(recorder, mine)


def _sources(args: Sequence[object]) -> list[object]:
    """Return how numbers were computed, traced back to the sizes that they come from."""
    found: list[object] = []
    for arg in args:
        if not isinstance(arg, Tracked):
            found.append(str(arg) if isinstance(arg, torch.Tensor) else arg)
        elif isinstance(arg.origin.target, str):
            found.append((arg.origin.target, *arg.origin.args[1:], plain(arg)))
        else:
            found.append((arg.origin.target, *_sources(arg.origin.args)))
    return found


def _holds_for_all_sizes(comparison: SizeComparison) -> bool:
    """Whether the answer is the same for every size, given that sizes are positive."""
    left, right = comparison.args
    if not isinstance(left, Tracked) or left.origin.target != "size" or isinstance(right, Tracked):
        return False
    answers = {bool(comparison.target(size, right)) for size in (1, 2, 3, 1000)}
    return (
        answers == {comparison.answer}
        and right in (0, 1, -1)
        and bool(comparison.target(1 << 40, right)) == comparison.answer
    )


def _is_same(left: object, right: object) -> bool:
    """Whether two numbers are the same size of the same tensor."""
    return _root(left) == _root(right) is not None


def _root(value: object) -> tuple[int, object] | None:
    """Return the tensor's id and the dimension whose size a number is; None if it is something else."""
    if not isinstance(value, Tracked):
        return None
    target, args = value.origin.target, value.origin.args
    if target == "size":
        return id(args[0]), args[1]
    if target is operator.add and len(args) == 2:
        known = [arg for arg in args if isinstance(arg, Tracked) or arg != 0]
        return _root(known[0]) if len(known) == 1 else None
    return None


def _add_guard(recorder: Recorder, comparison: SizeComparison) -> None:
    left, right = (_argument(recorder, arg) for arg in comparison.args)
    line = comparison.line.replace("\\", "/").rsplit("/", 1)[-1]
    equal = (comparison.target is operator.eq and comparison.answer) or (
        comparison.target is operator.ne and not comparison.answer
    )
    if equal and isinstance(left, fx.Node) and not isinstance(right, fx.Node):
        recorder.numbers.insert(comparison.place, hold, (left, right, line), None)
        return
    answer = recorder.numbers.insert(comparison.place, comparison.target, (left, right), comparison.answer)
    recorder.numbers.insert(comparison.place, hold, (answer, comparison.answer, line), None)


def _argument(recorder: Recorder, value: Any) -> fx.node.Argument:
    return recorder.numbers.node_of(value) if isinstance(value, Tracked) else value


def _fix(recorder: Recorder, lines: Mapping[Size, str]) -> None:
    """Specialize a graph to the example's values of some sizes."""
    for node in list(recorder.graph.nodes):
        value = node.meta.get("val")
        if node.meta.get("input") is not True or not isinstance(value, torch.Tensor):
            continue
        for dim, length in enumerate(value.shape):
            size = Size(length, dim == 0 and value.dim() > 1)
            if size in lines:
                place = recorder.start_after(node)
                number = recorder.numbers.insert(place, "size", (node, dim), length)
                recorder.numbers.insert(place, hold, (number, length, lines[size]), None)
