"""Changes of resolution."""

from __future__ import annotations

from torchport.targets.openvino.rules import takes

takes("upsample_nearest2d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec", "f")
