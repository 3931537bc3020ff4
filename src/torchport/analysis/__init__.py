"""Views of a model → what it is made of and what it costs."""

from torchport.analysis.cost import bytes_of, flops_of

__all__ = ["bytes_of", "flops_of"]
