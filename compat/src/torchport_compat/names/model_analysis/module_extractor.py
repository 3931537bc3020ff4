"""`extract_unique_modules`."""

from torchport.analysis import extract_unique_modules

__all__ = ["extract_unique_modules"]
