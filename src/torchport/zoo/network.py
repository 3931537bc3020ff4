"""Checks whether a host can be reached, so that loading without network fails at once with one error."""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request

from torchport.errors import ZooError

CONNECT_SECONDS = 5.0


def is_reachable(url: str) -> bool:
    """Return whether the host of `url` accepts connections.

    The libraries' own downloads retry for up to a minute, or wait without limit; this check comes first.
    Behind a proxy the host cannot be checked directly, and True is returned.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in urllib.request.getproxies() and not _bypasses_proxy(parts.hostname or ""):
        return True
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def host_of(url: str) -> str:
    """Return the host part of `url`."""
    return urllib.parse.urlsplit(url).hostname or url


def weights_error(name: str, reason: str) -> ZooError:
    """Return the error for weights that are unavailable; random ones are never substituted silently."""
    return ZooError(
        f"the weights of {name} cannot be fetched ({reason})",
        remedy="load it once with network access, or build it with random weights: "
        "weights=False (--no-weights)",
    )


def hub_endpoint() -> str:
    """Return the address of the hub that transformers and timm fetch from."""
    import huggingface_hub  # a dependency of both libraries, not of torchport

    return str(huggingface_hub.constants.ENDPOINT)


def _bypasses_proxy(host: str) -> bool:
    return bool(urllib.request.proxy_bypass(host))
