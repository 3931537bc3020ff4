"""Matrix products, in floats: torch computes those of integers exactly."""

from __future__ import annotations

from torchport.targets.openvino.rules import takes

takes("mm.default bmm.default addmm.default linear.default dot.default", "f")
