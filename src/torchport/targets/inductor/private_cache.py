"""Inductor's cache directory: inductor runs what it finds there, so no other user may write to it.

Its default is a directory in the system's folder for temporary files that any user may create first.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from torchport.records import temporary_folder
from torchport.targets.user_directory import cache_directory, make_private, need_private

_log = logging.getLogger(__name__)

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextlib.contextmanager
def private_cache() -> Iterator[None]:
    """Use a cache directory of the user's own: the one already in use if it is private, else torchport's."""
    before = os.environ.get(_VARIABLE)
    if before is not None and _is_private(Path(before)):
        yield
        return
    if before is not None:
        _log.warning("inductor's cache %s is not used: it is a link, or others may write to it", before)
    with contextlib.ExitStack() as stack:
        own = cache_directory() / "inductor"
        try:
            make_private(cache_directory())
            make_private(own)
        except OSError:
            own = stack.enter_context(temporary_folder("inductor"))
        os.environ[_VARIABLE] = str(own)
        if own.is_relative_to(cache_directory()) and before is None:
            yield  # inductor would set it, too
            return
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before


def _is_private(directory: Path) -> bool:
    if directory.is_symlink():  # another user may point it elsewhere later
        return False
    try:
        need_private(directory)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            make_private(directory)
            return True
        return False
    except OSError:
        return False
    return True
