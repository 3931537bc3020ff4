"""The options of the onnxruntime target, and which of them a file may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchport.errors import TargetError
from torchport.targets.target import Options, number

_MOST_THREADS = 1024


@dataclass(frozen=True)
class OnnxRuntimeOptions(Options):
    """How onnxruntime runs.

    Args:
        provider: the execution provider, without the suffix `ExecutionProvider`: `CPU`, `CUDA`, or another
            that `torchport targets` lists.
        threads: how many threads an inference uses; 0 means as many as torch.
    """

    provider: str = "CPU"
    threads: int = number(0, least=0, most=_MOST_THREADS)


def check_file_options(given: Mapping[str, object]) -> None:
    """Refuse options that a file may not set: a provider that may write caches or load other libraries.

    Raises:
        TargetError: the provider is not permitted.
    """
    if given.get("provider", "CPU") not in ("CPU", "CUDA"):
        raise TargetError(
            f"a file may not set the option provider to {given.get('provider')!r:.100}",
            where="onnxruntime",
            remedy="compile the model again, and pass it yourself",
        )
