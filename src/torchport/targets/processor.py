"""The processor's support for 8-bit products."""

from __future__ import annotations

import functools
import platform
from pathlib import Path


@functools.cache
def flags() -> frozenset[str]:
    """Return the processor's feature flags as Linux names them; none elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def has_int8() -> bool:
    """Whether it has instructions for int8 dot products: VNNI or AMX on x86, i8mm on ARM."""
    return bool(flags() & {"avx512_vnni", "avx_vnni", "amx_int8", "i8mm"})


def saturates() -> bool:
    """Whether sums of int8 products may saturate: x86 without VNNI adds pairs in 16 bits."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return is_x86 and bool(flags()) and not has_int8()
