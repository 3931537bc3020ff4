"""Artefacts and tensors → tensors: runs built islands; knows no compiler.

Nothing is imported here: torch runs `runtime.hook` inside `import torch`.
"""
