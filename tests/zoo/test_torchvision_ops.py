"""torchvision imports, and its ops run, with any build of torch."""

import subprocess
import sys

import pytest
import torch

from torchport.zoo.torchvision_ops import KERNELS, SCHEMAS, ensure_torchvision_ops, opaque_to_dynamo


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_op_is_there_once_and_again():
    ensure_torchvision_ops()
    ensure_torchvision_ops()
    import torchvision

    # If the extension loads, it has the ops of its own version, which may be fewer.
    own = torchvision.extension._load_library("_C")
    wanted = {op for op, _ in KERNELS} if own else SCHEMAS.keys()
    assert [op for op in wanted if not hasattr(torch.ops.torchvision, op)] == []
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.1, 0.2]), 0.5).tolist() == [1]


@pytest.mark.usefixtures("forked_python")
def test_it_fixes_an_import_that_failed_before():
    # In builds where the extension loads, the first import works and there is nothing to fix.
    code = """
try:
    import torchvision
except RuntimeError:
    pass
from torchport.zoo.torchvision_ops import ensure_torchvision_ops
ensure_torchvision_ops()
import torchvision
print(len(torchvision.models.list_models()) > 100)
"""
    assert run(code).strip() == "True"


@pytest.mark.usefixtures("forked_python")
def test_a_kernel_that_is_there_is_never_replaced():
    code = """
import torch
real = torch.library.Library("torchvision", "DEF")
real.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
real.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
real.impl("nms", lambda dets, scores, threshold: torch.tensor([42]), "CPU")
from torchport.zoo.torchvision_ops import ensure_torchvision_ops
ensure_torchvision_ops()
print(torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5).item())
"""
    import torchvision  # the real extension would clash with the one that this test imitates

    if torchvision.extension._load_library("_C"):
        pytest.skip("torchvision's own extension loads here, so its kernels cannot be played by others")
    assert run(code).strip() == "42"


def test_roi_align_is_a_good_citizen_of_torch():
    ensure_torchvision_ops()
    features = torch.randn(1, 2, 8, 8, requires_grad=True)
    boxes = torch.tensor([[0.0, 1.0, 1.0, 6.0, 6.0]])
    torch.library.opcheck(torch.ops.torchvision.roi_align.default, (features, boxes, 1.0, 2, 2, 2, True))


def test_the_stage_imports_no_model_library():
    code = """
import sys
import torchport.zoo
print(sorted({"torchvision", "timm", "transformers"} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


def test_torch_compile_does_not_look_into_a_kernel():
    graphs = []

    def keep(graph_module, inputs):
        graphs.append([str(node.target) for node in graph_module.graph.nodes])
        return graph_module

    kernel = opaque_to_dynamo(lambda x: torch.cos(x).numpy().sum())
    compiled = torch.compile(lambda x: torch.sin(x) * float(kernel(x)), backend=keep)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.sin(x) * float(torch.cos(x).sum()))
    assert graphs
    assert not any("cos" in name for graph in graphs for name in graph)
