"""Names files after ops."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

_LONGEST = 150  # file systems allow 255 bytes, extension and temporary affixes included


def op_file_names(ops: Iterable[str]) -> dict[str, str]:
    """Return a file name for each op, without its extension: the op itself if that is a valid name.

    A digest distinguishes names that had to be changed, or that differ only in case, which some file systems
    ignore.

    Example:
        >>> op_file_names(["aten.add.Tensor"])
        {'aten.add.Tensor': 'aten.add.Tensor'}
    """
    distinct = sorted(set(ops))
    alike = Counter(op.lower() for op in distinct)
    return {op: op if _is_name(op) and alike[op.lower()] == 1 else _made_safe(op) for op in distinct}


def _is_name(op: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", op) is not None and len(op) <= _LONGEST


def _made_safe(op: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", op)[:_LONGEST].strip("-.")
    return f"{readable or 'op'}-{hashlib.sha256(op.encode()).hexdigest()[:8]}"
