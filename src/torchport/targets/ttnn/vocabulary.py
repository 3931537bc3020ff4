"""The names, objects and strings that programs may use besides the functions of `functions.py`; no torch.

A program read from a file is untrusted, and other modules are reachable from the module `ttnn`, such as
`ttnn.os`. So nothing outside these tables is looked up in the library, written into a script or run. The
builder enforces them as well: a lowering that uses something new fails until it is added here.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from torchport.errors import TargetError, nearest

DTYPES = frozenset({"bfloat16", "bfloat8_b", "bfloat4_b", "float32", "int32", "uint32", "uint16"})
NAMES = DTYPES | {
    "device",
    "compute",
    "TILE_LAYOUT",
    "ROW_MAJOR_LAYOUT",
    "DRAM_MEMORY_CONFIG",
    "L1_MEMORY_CONFIG",
    "GeluVariant.Accurate",
    "GeluVariant.Tanh",
    "UnaryOpType.RELU",
    "UnaryOpType.RELU6",
    "UnaryOpType.SILU",
}

# The objects that programs construct, with their permitted keyword arguments.
MAKES: dict[str, frozenset[str]] = {
    "Conv2dConfig": frozenset({"weights_dtype", "activation"}),
    "UnaryWithParam": frozenset(),
}

TEXTS = frozenset({"nearest", "OIHW", "IOHW", "relu", "relu6", "silu"})
FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4")

HOST_DTYPES = frozenset(
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
)  # fmt: skip

# Names that emitted scripts use themselves, and Python's keywords and builtins; see `emit.py`.
RESERVED = frozenset(
    """
    FILE Path arrays check compute device float load load_file main make_compute numpy on_device read run
    ttnn w
    and as assert async await break class continue def del elif else except False finally for from global
    if import in is lambda None nonlocal not or pass raise return True try while with yield
    """.split()
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def need(kind: str, name: object, known: Collection[str]) -> str:
    """Return the name if it is one that programs may use.

    Raises:
        TargetError: torchport's programs do not use this name.
    """
    if isinstance(name, str) and name in known:
        return name
    remedy = nearest(name, known) if isinstance(name, str) else ""
    raise TargetError(
        f"{name!r:.100} is not a {kind} that torchport's programs use", where="ttnn", remedy=remedy
    )


def need_identifier(name: object) -> str:
    """Return a tensor's name if scripts can use it as a variable.

    Raises:
        TargetError: it is not a valid variable name, or is reserved.
    """
    if isinstance(name, str) and _IDENTIFIER.fullmatch(name) and name not in RESERVED:
        return name
    raise TargetError(f"{name!r:.100} cannot be the name of a tensor", where="ttnn")
