"""Says whether a host can be reached, so that a load without network fails at once and with one message."""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request

from torchport.errors import ZooError

CONNECT_SECONDS = 5.0


def is_reachable(url: str) -> bool:
    """Say whether the host of `url` takes connections.

    The libraries' own downloads retry for up to a minute, or wait without limit; this asks first. Behind a
    proxy the question cannot be asked directly, and the answer is yes.
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
    """Return the refusal for weights that cannot be had. Random ones are never put in their place unasked."""
    return ZooError(
        f"the weights of {name} cannot be fetched ({reason})",
        remedy="load it once with network access, or build it with random weights: "
        "weights=False (--no-weights)",
    )


def hub_endpoint() -> str:
    """Return the address of the hub that transformers and timm fetch from."""
    import huggingface_hub  # comes with them, and with nothing lighter

    return str(huggingface_hub.constants.ENDPOINT)


def _bypasses_proxy(host: str) -> bool:
    return bool(urllib.request.proxy_bypass(host))
