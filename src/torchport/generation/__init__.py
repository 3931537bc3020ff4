"""A generative model → transformers' own `generate` loop around compiled calls that extend a KV cache."""

from torchport.generation.analyze_generation import analyze_generation
from torchport.generation.generating import can_generate, is_cache, is_generating

__all__ = ["analyze_generation", "can_generate", "is_cache", "is_generating"]
