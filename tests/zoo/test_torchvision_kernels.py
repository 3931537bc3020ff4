"""torchvision's ops in Python, compared with hand calculation and torchvision's own Python versions."""

import importlib

import pytest
import torch

from torchport.zoo.torchvision_kernels import nms, roi_align, roi_align_backward
from torchport.zoo.torchvision_ops import ensure_torchvision_ops


def test_nms_drops_what_overlaps_a_better_box():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 5, 10, 15]])
    scores = torch.tensor([0.5, 0.9, 0.1, 0.4])
    # Box 1 has an IoU of 90/110 with box 0, and of 45/155 with box 3.
    assert nms(boxes, scores, 0.5).tolist() == [1, 3, 2]
    assert nms(boxes, scores, 0.25).tolist() == [1, 2]
    assert nms(boxes, scores, 0.9).tolist() == [1, 0, 3, 2]


def test_nms_takes_no_boxes_and_boxes_without_area():
    assert nms(torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []
    assert nms(torch.zeros(2, 4), torch.tensor([0.1, 0.2]), 0.5).tolist() == [1, 0]


def test_nms_holds_across_blocks():
    torch.manual_seed(0)
    corners = torch.rand(1200, 2) * 300
    boxes = torch.cat([corners, corners + 20], dim=1)
    kept = nms(boxes, torch.rand(1200), 0.3)
    overlap = torchvision_iou(boxes[kept])
    assert overlap.fill_diagonal_(0).max() <= 0.3
    dropped = torch.ones(1200, dtype=torch.bool).index_fill(0, kept, False)
    assert (torchvision_iou(boxes[dropped], boxes[kept]).max(dim=1).values > 0.3).all()


def torchvision_iou(first, second=None):
    ensure_torchvision_ops()
    from torchvision.ops import box_iou

    return box_iou(first, first if second is None else second)


def test_roi_align_of_a_ramp_is_the_ramp_at_the_bins_centres():
    ramp = torch.arange(8.0).expand(1, 1, 8, 8)  # value = x
    box = torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]])
    # Without alignment, x from 1 to 5 in two bins: their centres are 2 and 4.
    assert roi_align(ramp, box, 1.0, 1, 2, 2, False).tolist() == [[[[2.0, 4.0]]]]
    # With alignment, half a pixel less.
    assert roi_align(ramp, box, 1.0, 1, 2, 2, True).tolist() == [[[[1.5, 3.5]]]]


@pytest.mark.parametrize("sampling_ratio", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align_is_torchvisions(sampling_ratio, aligned):
    ensure_torchvision_ops()
    reference = importlib.import_module("torchvision.ops.roi_align")._roi_align.__wrapped__
    torch.manual_seed(0)
    features = torch.randn(2, 4, 20, 30)
    corners = torch.rand(40, 2) * 40
    boxes = torch.cat([torch.arange(40.0)[:, None] % 2, corners, corners + 1 + torch.rand(40, 2) * 30], dim=1)
    settings = (0.25, 7, 5, sampling_ratio, aligned)
    torch.testing.assert_close(
        roi_align(features, boxes, *settings), reference(features, boxes, *settings), atol=1e-4, rtol=1e-4
    )


def test_roi_align_takes_no_boxes():
    assert roi_align(torch.ones(1, 3, 8, 8), torch.zeros(0, 5), 1.0, 7, 7, -1, True).shape == (0, 3, 7, 7)


def test_the_gradient_of_a_mean_spreads_evenly():
    # One bin over the pixels 0..1 × 0..1, sampled at their centres: each pixel gives a quarter.
    box = torch.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]])
    grad = roi_align_backward(torch.ones(1, 1, 1, 1), box, 1.0, 1, 1, 1, 1, 4, 4, 2, True)
    expected = torch.zeros(1, 1, 4, 4)
    expected[0, 0, :2, :2] = 0.25
    assert torch.equal(grad, expected)
