"""Lets several threads be the first to name a backend of torchport's to `torch.compile`.

torch looks at whether a backend is registered, loads its entry point, and registers what it loaded, all
without a lock: of threads that do so at the same time, all but one end in "duplicate name". While an entry
point is loaded they wait, so that what torch looks at can be changed: torchport's own names may be registered
again.
"""

from __future__ import annotations

from collections.abc import Callable

from torchport.torch_private import replace_backends

_NAMES = ("torchport", "torchport_stat")  # the entry points


class _Registered(dict[str, Callable[..., object]]):
    """Torch's table of backends, in which torchport's are never said to be registered already."""

    def __contains__(self, name: object) -> bool:
        return name not in _NAMES and super().__contains__(name)


replace_backends(_Registered)
