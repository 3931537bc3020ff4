"""Reads and checks a program from an untrusted file: it may only call what torchport calls; no torch.

Each name is declared once, before it is used. Functions, keywords, names and strings must be ones that
torchport's own programs use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torchport.errors import TargetError
from torchport.records import JSON
from torchport.targets.ttnn.arguments import Argument, Keywords, Make, Name, Ref, malformed, refs_among
from torchport.targets.ttnn.functions import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import Call, Crossing, DeviceTensor, TtnnProgram
from torchport.targets.ttnn.vocabulary import (
    FIDELITIES,
    HOST_DTYPES,
    MAKES,
    NAMES,
    TEXTS,
    need,
    need_identifier,
)

MOST_BYTES = 32 * 2**30  # no chip has more memory
_MOST_DIMENSIONS = 16
_LARGEST = 2**63  # the library stores numbers in 64 bits


def read_program(data: JSON) -> TtnnProgram:
    """Build a program from its JSON.

    Raises:
        RecordError: the schema is wrong, or a field is missing or has the wrong type.
        TargetError: torchport cannot have written the program.
    """
    program = TtnnProgram.from_json(data)
    check_program(program)
    return program


def check_program(program: TtnnProgram) -> None:
    """Refuse a program that torchport cannot have written.

    Raises:
        TargetError: the error names the wrong call or name.
    """
    need("math fidelity", program.math_fidelity, FIDELITIES)
    known: set[str] = set()
    for weight in program.weights:
        _declare(weight.name, known)
        _check_tensor(weight.tensor, weight.name)
    for call in program.load:
        _check_call(call, known)
        if call.frees:
            raise TargetError("the program frees a weight", where=f"ttnn, {call.results[0]}")
    weights = frozenset(known)
    for crossing in program.inputs:
        _declare(crossing.name, known)
        _check_crossing(crossing)
    for call in program.calls:
        _check_call(call, known)
        _free(call, known, weights)
    for crossing in program.outputs:
        _need_known(crossing.name, known, "an output")
        _check_crossing(crossing)


def check_call(function: str, args: Iterable[Argument], kwargs: Keywords) -> None:
    """Refuse a function that torchport does not call, or arguments that it does not pass.

    Raises:
        TargetError: torchport's programs do not use the function, or a keyword, name, object or string.
    """
    keywords = FUNCTIONS[need("function", function, FUNCTIONS)].keywords
    for item in args:
        _check_argument(item)
    for key, item in kwargs:
        need("keyword", key, keywords)
        _check_argument(item)


def _check_argument(argument: Argument) -> None:
    if isinstance(argument, Name):
        need("name", argument.path, NAMES)
    elif isinstance(argument, Make):
        keywords = MAKES[need("object", argument.function, MAKES)]
        for item in argument.args:
            _check_constant(item)
        for key, item in argument.kwargs:
            need("keyword", key, keywords)
            _check_constant(item)
    elif isinstance(argument, tuple):
        for item in argument:
            _check_argument(item)
    elif isinstance(argument, str):
        need("text", argument, TEXTS)
    elif isinstance(argument, int) and abs(argument) >= _LARGEST:
        raise TargetError("a number in the program needs more than 64 bits", where="ttnn")


def _check_constant(argument: Argument) -> None:
    """Check an argument of an object's constructor: it cannot be a tensor or a list."""
    if isinstance(argument, (Ref, tuple)):
        raise malformed("an object", argument)
    _check_argument(argument)


def _declare(name: str, known: set[str]) -> None:
    if need_identifier(name) in known:
        raise TargetError(f"two tensors are named {name}", where="ttnn")
    known.add(name)


def _need_known(name: str, known: set[str], where: str) -> None:
    if name not in known:
        raise TargetError(f"there is no tensor {name!r:.100}", where=f"ttnn, {where}")


def _check_call(call: Call, known: set[str]) -> None:
    check_call(call.function, call.args, call.kwargs)
    if len(call.results) != 1 or len(call.tensors) != 1:
        raise TargetError(
            f"a call returns {len(call.results)} tensors, not one", where=f"ttnn.{call.function}"
        )
    for name in refs_among((*call.args, *[item for _, item in call.kwargs])):
        _need_known(name, known, call.function)
    _declare(call.results[0], known)
    _check_tensor(call.tensors[0], call.results[0])


def _free(call: Call, known: set[str], weights: frozenset[str]) -> None:
    for name in call.frees:
        if name in weights:  # the next run of the program needs it too
            raise TargetError("the program frees a weight", where=f"ttnn, {call.results[0]}")
        _need_known(name, known, f"freed after {call.function}")
        known.discard(name)


def _check_crossing(crossing: Crossing) -> None:
    need("host dtype", crossing.host_dtype, HOST_DTYPES)
    _check_tensor(crossing.tensor, crossing.name)
    _check_sizes(crossing.host_shape, crossing.name)
    if math.prod(crossing.host_shape) != math.prod(crossing.tensor.shape):
        raise TargetError(
            "a tensor has a different number of elements on host and device", where=f"ttnn, {crossing.name}"
        )
    if crossing.order and sorted(crossing.order) != list(range(len(crossing.host_shape))):
        raise TargetError(
            f"{crossing.order} is not a permutation of its dimensions", where=f"ttnn, {crossing.name}"
        )


def _check_tensor(tensor: DeviceTensor, name: str) -> None:
    _check_sizes(tensor.shape, name)
    if tensor.bytes > MOST_BYTES:
        raise TargetError(f"{tensor} needs more memory than any chip has", where=f"ttnn, {name}")


def _check_sizes(shape: Iterable[int], name: str) -> None:
    sizes = list(shape)
    if len(sizes) > _MOST_DIMENSIONS or any(size < 0 or size > MOST_BYTES for size in sizes):
        raise TargetError(f"{sizes!r:.100} is not a shape", where=f"ttnn, {name}")
