"""The registry of targets: the built-in ones, and plug-ins from other distributions."""

from __future__ import annotations

import functools
import logging
from importlib.metadata import entry_points

from torchport.errors import TargetError, nearest
from torchport.targets.auto import AutoTarget
from torchport.targets.host import HostTarget
from torchport.targets.inductor import InductorTarget
from torchport.targets.onnxruntime import OnnxRuntimeTarget
from torchport.targets.openvino import OpenVinoTarget
from torchport.targets.target import Target
from torchport.targets.ttnn import TtnnTarget

_log = logging.getLogger(__name__)

BUILT_IN: tuple[Target, ...] = (
    HostTarget(),
    OpenVinoTarget(),
    OnnxRuntimeTarget(),
    InductorTarget(),
    TtnnTarget(),
    AutoTarget(),
)


@functools.cache
def _all() -> dict[str, Target]:
    found = {target.name: target for target in BUILT_IN}
    for entry in entry_points(group="torchport.targets"):
        try:
            target = _made(entry.load())
        except Exception as error:  # noqa: BLE001  # one broken plug-in must not break the others
            _log.warning("the target plug-in %s cannot be loaded: %s", entry.name, error)
            continue
        if target.name in found:
            _log.warning("the target plug-in %s is ignored: %r is taken", entry.name, target.name)
        else:
            found[target.name] = target
    return found


def _made(loaded: object) -> Target:
    target = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(target, Target):
        raise TypeError(f"{target!r} is not a torchport target")
    return target


def names() -> list[str]:
    """Return the names of all targets.

    Example:
        >>> "host" in names()
        True
    """
    return sorted(_all())


def find(name: str) -> Target:
    """Return the target of that name.

    Raises:
        TargetError: there is no such target; suggests the nearest names.
    """
    target = _all().get(name) if isinstance(name, str) else None
    if target is None:
        raise TargetError(f"no target named {name!r}", remedy=nearest(str(name), _all()))
    return target


def find_engine(name: str) -> Target:
    """Return the target of that name, which must not be `auto`.

    Raises:
        TargetError: there is no such target, or it is `auto`, which chooses among the others by measuring.
    """
    target = find(name)
    if isinstance(target, AutoTarget):
        raise TargetError(
            "auto chooses a target by measuring compiled models, which is not possible here",
            where=name,
            remedy="name a target; torchport.compile(…, target='auto').tries says which is the fastest",
        )
    return target


def engines() -> list[str]:
    """Return the targets that `auto` may choose: those whose timings on this machine are meaningful."""
    known = _all()
    return [name for name in known if known[name].is_timed and not isinstance(known[name], AutoTarget)]
