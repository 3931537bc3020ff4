"""Has torch.export take a model without weights for one on the CPU.

Many ops lay out their results by device: attention gives other strides on `meta` than on the CPU, and a
`contiguous` after it is an op of the graph on one and none on the other. What is explained without weights
has to be what is compiled with them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from torchport.capture.untouched import Once, faker
from torchport.torch_private import FakeTensorMode, ShapeEnv, TracingContext, set_fake_tensor, tracing


class WithoutValues:
    """The tensors of the `meta` device that a model and its inputs hold, each with a fake one of the CPU.

    Example:
        >>> found = WithoutValues()
        >>> found.note(torch.ones(2, device="meta")).device
        device(type='meta')
    """

    def __init__(self) -> None:
        self._mode: _HostMode | None = None

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor of the model's or an input, and return it."""
        if tensor.is_meta:
            self._mode = self._mode or _HostMode()
            set_fake_tensor(self._mode, tensor, self._mode.fakes(tensor))
        return tensor

    def exporting(self) -> AbstractContextManager[object]:
        """Return what torch.export runs in, to have it use the fake tensors."""
        return nullcontext() if self._mode is None else tracing(TracingContext(self._mode))


class _HostMode(FakeTensorMode):
    """The mode that torch.export would make itself, with the fake tensors, which torch does not hold.

    They are needed for as long as the graph is: when its ops are taken apart, weights become fake again.
    """

    def __init__(self) -> None:
        sizes = ShapeEnv(tracked_fakes=[], trace_asserts=True)
        super().__init__(shape_env=sizes, allow_non_fake_inputs=True, export=True)
        self.fakes = Once(faker(self))
