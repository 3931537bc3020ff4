"""Artifacts and tensors → tensors: runs built islands; independent of the compiler.

Imports nothing: torch runs `runtime.hook` inside `import torch`.
"""
