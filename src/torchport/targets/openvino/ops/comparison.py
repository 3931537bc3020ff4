"""Comparisons, of floats and of integers; OpenVINO compares both as torch does, but for NaN.

NaN that comes from outside is caught before an island runs.
"""

from __future__ import annotations

from torchport.targets.openvino.rules import takes

takes("eq.Tensor eq.Scalar ne.Tensor ne.Scalar", "fib")
takes("lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar", "fib")
