"""A compiled model ↔ a file; and `trace`, which produces TorchScript.

Imports nothing: loading a package does not need the compiler.
"""
