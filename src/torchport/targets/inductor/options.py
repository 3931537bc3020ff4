"""The options of the inductor target."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.errors import TargetError, nearest
from torchport.targets.target import Options

LAYOUTS = ("auto", "on", "off")


@dataclass(frozen=True)
class InductorOptions(Options):
    """How inductor compiles and runs.

    Args:
        cuda_graphs: whether a GPU gets an island as one CUDA graph, so that kernels cost no launch each.
        channels_last: whether weights of convolutions lie channels-last; `auto` measures it on GPUs, and
            leaves them as they are on CPUs.
        max_autotune: whether inductor tries many kernels for each product; takes minutes.
    """

    child_trial: bool = True  # what it makes is machine code of this minute
    cuda_graphs: bool = True
    channels_last: str = "auto"
    max_autotune: bool = False


def check_options(options: InductorOptions) -> None:
    """Refuse a value that there is not.

    Raises:
        TargetError: names those that there are.
    """
    if options.channels_last not in LAYOUTS:
        raise TargetError(
            f"channels_last cannot be {options.channels_last!r}",
            where="inductor",
            remedy=nearest(options.channels_last, LAYOUTS),
        )
