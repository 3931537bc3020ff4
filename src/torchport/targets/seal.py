"""Seals texts that only the same user may use again, by an HMAC with a secret in the user's own directory."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from torchport.targets.user_directory import cache_directory, make_private, need_private, open_private

_BYTES = 32


def seal(text: str) -> str:
    """Return the seal of a text; empty, so that nothing is sealed, if no secret can be stored."""
    secret = _secret() or _new_secret()
    return _code(secret, text) if secret else ""


def is_sealed(text: str, given: object) -> bool:
    """Whether this user sealed this text."""
    secret = _secret()
    if not secret or not isinstance(given, str) or not given.isascii():
        return False
    return hmac.compare_digest(_code(secret, text), given)


def _code(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def _path() -> Path:
    return cache_directory() / "secret"


def _secret() -> bytes:
    """Return the user's secret; empty if there is none, or others may have read it."""
    try:
        need_private(cache_directory())
        with open_private(_path()) as file:
            known_to_others = os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077
            found = file.read(_BYTES + 1)
    except OSError:
        return b""
    return found if len(found) == _BYTES and not known_to_others else b""


def _new_secret() -> bytes:
    """Create a secret, unless another process just did."""
    try:
        make_private(cache_directory())
        _path().unlink(missing_ok=True)
        descriptor = os.open(_path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
    except OSError:
        pass  # a read-only disk, or another process created it first
    return _secret()
