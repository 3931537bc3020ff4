"""Fixes a race when several threads are first to use a torchport backend in `torch.compile`.

torch checks whether a backend is registered, loads its entry point, and registers it, all without a lock: if
threads do so at the same time, all but one fail with "duplicate name". Threads wait while an entry point is
being loaded, so importing this module is the moment to replace torch's table with one in which torchport's
names may be registered again.
"""

from __future__ import annotations

from collections.abc import Callable

from torchport.torch_private import replace_backends

_NAMES = ("torchport", "torchport_stat")  # the entry points


class _Registered(dict[str, Callable[..., object]]):
    """Torch's table of backends, which never reports torchport's as already registered."""

    def __contains__(self, name: object) -> bool:
        return name not in _NAMES and super().__contains__(name)


replace_backends(_Registered)
