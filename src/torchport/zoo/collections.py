"""Lists a library's models, or those that match a pattern, for a survey."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping

from torchport.errors import ZooError, nearest
from torchport.zoo import hf_small, timm_models, torchvision_models

# Detection and optical-flow models take inputs other than images or clips, and quantized models are not
# floating-point; each can still be loaded by name.
TORCHVISION_KINDS = ("classification", "segmentation", "video")


def _torchvision() -> list[str]:
    names = torchvision_models.names()
    chosen = [name for name in names if torchvision_models.kind_of(name) in TORCHVISION_KINDS]
    return sorted(chosen, key=lambda name: TORCHVISION_KINDS.index(torchvision_models.kind_of(name)))


ZOOS: Mapping[str, tuple[str, Callable[[], list[str]]]] = {
    "torchvision": (torchvision_models.SCHEME, _torchvision),
    "timm": (timm_models.SCHEME, timm_models.names),
    "transformers": (hf_small.SCHEME, hf_small.small_hf_names),
}


def list_zoo(name: str, pattern: str = "*") -> list[str]:
    """Return the names of a library's models, as `load` takes them.

    Args:
        name: `torchvision` (classification, then segmentation and video models), `timm`, or `transformers`
            (each architecture in a small configuration, with random weights).
        pattern: which of them, such as `resnet*`. `torchvision:classification` instead of `torchvision`
            selects the models of one kind.

    Raises:
        ZooError: there is no such library or kind, it is not installed, or no name matches.

    Example:
        >>> list_zoo("torchvision", "resnet1*")
        ['torchvision:resnet101', 'torchvision:resnet152', 'torchvision:resnet18']
    """
    library, _, kind = name.partition(":")
    if library not in ZOOS:
        raise ZooError(f"unknown zoo {name!r}", remedy=nearest(library, ZOOS))
    scheme, list_names = ZOOS[library]
    found = list_names()
    if kind:
        found = _of_kind(found, library, kind)
    found = [entry for entry in found if fnmatch.fnmatchcase(entry, pattern)]
    if not found:
        raise ZooError(f"no model of {name} matches {pattern!r}", remedy="use a pattern such as 'resnet*'")
    return [f"{scheme}:{entry}" for entry in found]


def _of_kind(names: list[str], library: str, kind: str) -> list[str]:
    if library != "torchvision" or kind not in TORCHVISION_KINDS:
        known = [f"torchvision:{known}" for known in TORCHVISION_KINDS]
        raise ZooError(
            f"unknown zoo '{library}:{kind}'", remedy=nearest(f"{library}:{kind}", [*ZOOS, *known])
        )
    return [name for name in names if torchvision_models.kind_of(name) == kind]
