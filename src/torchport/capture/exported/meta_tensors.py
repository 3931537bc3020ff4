"""Makes torch.export treat a model on the meta device as one on the CPU.

The strides of many ops' results depend on the device: attention returns other strides on `meta` than on the
CPU, and a `contiguous` after it is an op in the graph on one device and none on the other. A model that is
explained without weights must give the same graph as one that is compiled with them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from torchport.capture.untouched import Once, faker
from torchport.torch_private import FakeTensorMode, ShapeEnv, TracingContext, set_fake_tensor, tracing


class WithoutValues:
    """Maps the `meta` tensors of a model and its inputs to fake tensors on the CPU.

    Example:
        >>> found = WithoutValues()
        >>> found.note(torch.ones(2, device="meta")).device
        device(type='meta')
    """

    def __init__(self) -> None:
        self._mode: _HostMode | None = None

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Register a tensor of the model or its inputs, and return it."""
        if tensor.is_meta:
            self._mode = self._mode or _HostMode()
            set_fake_tensor(self._mode, tensor, self._mode.fakes(tensor))
        return tensor

    def exporting(self) -> AbstractContextManager[object]:
        """Return a context in which torch.export uses the fake tensors."""
        return nullcontext() if self._mode is None else tracing(TracingContext(self._mode))


class _HostMode(FakeTensorMode):
    """The mode that torch.export would create itself, but with references to its fake tensors.

    They must live as long as the graph: when its ops are decomposed, the weights become fake tensors again.
    """

    def __init__(self) -> None:
        sizes = ShapeEnv(tracked_fakes=[], trace_asserts=True)
        super().__init__(shape_env=sizes, allow_non_fake_inputs=True, export=True)
        self.fakes = Once(faker(self))
