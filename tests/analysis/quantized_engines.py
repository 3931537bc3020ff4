"""torch's quantized engines: which ones exist and work depends on the processor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Make torch quantize with an engine within the block."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def quantized_by_each(
    quantize: Callable[[], torch.nn.Module], x: torch.Tensor
) -> list[tuple[str, torch.nn.Module]]:
    """Return a model as packed by each engine of this machine that can run it with eager torch."""
    found = []
    for name in torch.backends.quantized.supported_engines:
        with engine(name):
            try:
                model = quantize()
                model(x)
            except RuntimeError:
                continue  # torch lists engines that lack a kernel on this processor
            found.append((name, model))
    assert found, f"eager torch runs the model with none of {torch.backends.quantized.supported_engines}"
    return found
