"""A compiled model ↔ a file; and `trace`, which gives TorchScript.

Nothing is imported here: what loads a package needs no compiler.
"""
