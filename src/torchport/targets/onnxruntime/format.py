"""The layout of an island built for onnxruntime: what `build` writes and `load` reads.

The payload is an ONNX model including its weights. The properties are `format`, the number below, and those
of `call_checks.py`.
"""

FORMAT = 4
