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
        cuda_graphs: whether an island runs on a GPU as one CUDA graph, which avoids launching each kernel.
        channels_last: whether convolution weights are stored channels-last; `auto` measures both layouts on
            GPUs, and leaves weights as they are on CPUs.
        max_autotune: whether inductor tries many kernels for each matrix product; takes minutes.
    """

    child_trial: bool = True  # inductor generates new machine code, which may crash
    cuda_graphs: bool = True
    channels_last: str = "auto"
    max_autotune: bool = False


def check_options(options: InductorOptions) -> None:
    """Refuse an unknown value of `channels_last`.

    Raises:
        TargetError: the value is unknown; the error lists the nearest ones.
    """
    if options.channels_last not in LAYOUTS:
        raise TargetError(
            f"channels_last cannot be {options.channels_last!r}",
            where="inductor",
            remedy=nearest(options.channels_last, LAYOUTS),
        )
