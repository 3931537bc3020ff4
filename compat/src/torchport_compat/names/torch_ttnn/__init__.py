"""torchport's ttnn target under the name of Tenstorrent's backend for `torch.compile`."""

from torchport_compat.naming import claim

claim(__name__)

from torch_ttnn.ttnn_backend import TorchTtnnOption, backend

__all__ = ["TorchTtnnOption", "backend"]
