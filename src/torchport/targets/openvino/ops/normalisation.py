"""Normalisation layers. Their second and third results, the statistics, are torch's alone."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, takes

takes("rms_norm.default", "f")


@checked(
    "_native_batch_norm_legit_no_training.default native_layer_norm.default native_group_norm.default", "f"
)
def _first_result(node: fx.Node) -> Verdict | None:
    if any(user.args[1] != 0 for user in node.users):
        return argument("the mean and deviation are used, which OpenVINO does not give")
    return None
