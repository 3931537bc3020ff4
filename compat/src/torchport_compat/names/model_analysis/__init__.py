"""torchport's analysis under the name of tt-model-analysis."""

from torchport_compat.naming import claim

claim(__name__)

from torchport.analysis import extract_pytorch_ops, extract_unique_modules

__all__ = ["extract_pytorch_ops", "extract_unique_modules"]
