"""Registers the op `torchport::island`; runs inside `import torch`, so it is tiny and never raises.

torch calls `register` through the entry-point group `torch.backends`, so `torch.jit.load` of a traced model
finds the op in a process that never imports torchport.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SCHEMA = "island(Tensor blob, str meta, Tensor[] args) -> Tensor[]"

_lock = threading.RLock()
_library: torch.library.Library | None = None  # keeps the registration alive


def register() -> None:
    """Register the op, once; a failure is logged, since raising here would break `import torch`."""
    global _library
    with _lock:
        if _library is not None:
            return
        try:
            import torch

            library = torch.library.Library("torchport", "DEF")
            library.define(SCHEMA)
            library.impl("island", _run, "CPU")
            library.impl("island", _run, "CUDA")
            torch.library.register_fake("torchport::island", _infer, lib=library)
            _library = library
        except Exception:  # never break the user's `import torch`
            logging.getLogger(__name__).debug("torchport::island was not registered", exc_info=True)


def _run(blob: torch.Tensor, meta: str, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    from torchport.runtime.island import run_island

    return run_island(blob, meta, args)


def _infer(blob: torch.Tensor, meta: str, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    from torchport.runtime.island import infer_island

    return infer_island(meta, args[0].device if args else blob.device, args)
