"""The options of the inductor target."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.targets.target import Options, choice

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
    channels_last: str = choice("auto", LAYOUTS)
    max_autotune: bool = False
