"""The options of the onnxruntime target, and which of them a file may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchport.errors import TargetError
from torchport.targets.target import Options

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
    threads: int = 0


def check_threads(options: OnnxRuntimeOptions) -> None:
    """Refuse a number of threads outside the permitted range.

    Raises:
        TargetError: the number is out of range; the error names the range.
    """
    if not 0 <= options.threads <= _MOST_THREADS:
        raise TargetError(
            f"threads must be between 0 and {_MOST_THREADS}, not {options.threads}", where="onnxruntime"
        )


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
