"""torchvision's detection ops in plain Python, for use where its compiled ops do not load.

They compute the same results as torchvision's CPU kernels. They are not fast, but make detection models run.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# Boxes sampled at a time: bounds the memory of the sampled values, which all exist before the mean is taken.
BOXES_AT_A_TIME = 32
ROWS_AT_A_TIME = 512


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes to keep, best score first, without those that overlap a better one."""
    order = scores.sort(descending=True, stable=True).indices
    ordered = boxes[order]
    alive = torch.ones(len(order), dtype=torch.bool)
    standing = alive.numpy()  # the same memory: one step of the loop costs microseconds in numpy
    for start in range(0, len(order), ROWS_AT_A_TIME):
        overlaps = _overlaps(ordered[start : start + ROWS_AT_A_TIME], ordered, iou_threshold).numpy()
        for row, overlap in enumerate(overlaps, start):
            if standing[row]:
                standing[row + 1 :] &= ~overlap[row + 1 :]
    return order[alive]


def _overlaps(some: Tensor, boxes: Tensor, iou_threshold: float) -> Tensor:
    """Return for each of `some` (rows) which of `boxes` (columns) it overlaps by more than the threshold."""
    top_left = torch.maximum(some[:, None, :2], boxes[None, :, :2])
    bottom_right = torch.minimum(some[:, None, 2:], boxes[None, :, 2:])
    shared = (bottom_right - top_left).clamp(min=0).prod(2)
    union = _areas(some)[:, None] + _areas(boxes)[None, :] - shared
    # A box without area overlaps nothing: 0/0 is nan, and nan > threshold is False, as in the C++ kernel.
    return shared / union > iou_threshold


def _areas(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def roi_align(
    features: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the mean of `features` (N, C, H, W) in each bin of each of `rois` (K, 5): (K, C, PH, PW)."""
    pooled = (pooled_height, pooled_width)
    if len(rois) == 0:
        return features.new_empty((0, features.shape[1], *pooled))
    if sampling_ratio > 0:
        samples = (sampling_ratio, sampling_ratio)
        parts = [
            _sample_boxes(features, some, spatial_scale, pooled, samples, aligned)
            for some in rois.split(BOXES_AT_A_TIME)
        ]
    else:
        # The number of samples depends on each box's size, so boxes cannot share one grid.
        parts = [
            _sample_boxes(
                features, roi, spatial_scale, pooled, _samples(roi, spatial_scale, pooled, aligned), aligned
            )
            for roi in rois.split(1)
        ]
    return torch.cat(parts)


def roi_align_meta(features: Tensor, rois: Tensor, scale: float, *settings: int) -> Tensor:
    """Return an empty tensor of `roi_align`'s shape."""
    return features.new_empty((rois.shape[0], features.shape[1], *settings[:2]))


def roi_align_backward(
    grad: Tensor, rois: Tensor, scale: float, pooled_height: int, pooled_width: int, *others: int
) -> Tensor:
    """Return the gradient of `roi_align` for its features, whose shape is at the start of `others`."""
    *shape, sampling_ratio, aligned = others
    # roi_align is linear in its features, so the gradient does not depend on their values.
    with torch.enable_grad():
        features = grad.new_zeros(shape, requires_grad=True)
        output = roi_align(features, rois, scale, pooled_height, pooled_width, sampling_ratio, bool(aligned))
        if not output.requires_grad:
            return features.detach()
        return torch.autograd.grad(output, features, grad)[0]


def roi_align_backward_meta(grad: Tensor, rois: Tensor, scale: float, *others: int) -> Tensor:
    """Return an empty tensor of `roi_align_backward`'s shape."""
    return grad.new_empty(others[2:6])


def roi_align_save(ctx: Any, inputs: tuple[object, ...], output: Tensor) -> None:
    """Save what the backward pass needs: `torch.library.register_autograd`'s `setup_context`."""
    features, rois, *settings = inputs
    assert isinstance(features, Tensor)
    assert isinstance(rois, Tensor)
    ctx.save_for_backward(rois)
    ctx.features_shape = features.shape
    ctx.settings = settings


def roi_align_autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return `roi_align`'s gradients, one for each input: only that of the features is not None."""
    (rois,) = ctx.saved_tensors
    scale, pooled_height, pooled_width, sampling_ratio, aligned = ctx.settings
    shape = ctx.features_shape
    features = torch.ops.torchvision._roi_align_backward(
        grad, rois, scale, pooled_height, pooled_width, *shape, sampling_ratio, aligned
    )
    return features, None, None, None, None, None, None


def _samples(roi: Tensor, scale: float, pooled: tuple[int, int], aligned: bool) -> tuple[int, int]:
    """Return how many samples a bin of the box takes, down and across: about one per feature pixel."""
    _, x1, y1, x2, y2 = roi[0].tolist()
    least = 0.0 if aligned else 1.0
    height, width = max((y2 - y1) * scale, least), max((x2 - x1) * scale, least)
    return max(math.ceil(height / pooled[0]), 0), max(math.ceil(width / pooled[1]), 0)


def _sample_boxes(
    features: Tensor,
    rois: Tensor,
    scale: float,
    pooled: tuple[int, int],
    samples: tuple[int, int],
    aligned: bool,
) -> Tensor:
    if 0 in samples:
        return features.new_zeros((len(rois), features.shape[1], *pooled))
    corners = rois[:, 1:] * scale - (0.5 if aligned else 0.0)
    image = rois[:, 0].long()
    x = _sample_points(corners[:, 0], corners[:, 2], pooled[1], samples[1], aligned)
    y = _sample_points(corners[:, 1], corners[:, 3], pooled[0], samples[0], aligned)
    values = _bilinear(features, image, y, x)
    shape = (*values.shape[:2], pooled[0], samples[0], pooled[1], samples[1])
    return values.reshape(shape).mean((3, 5))


def _sample_points(start: Tensor, end: Tensor, bins: int, samples: int, aligned: bool) -> Tensor:
    """Return the (K, bins * samples) coordinates at which each box is sampled along one axis."""
    length = end - start if aligned else (end - start).clamp(min=1.0)
    steps = (torch.arange(bins * samples, dtype=start.dtype, device=start.device) + 0.5) / (bins * samples)
    return start[:, None] + length[:, None] * steps


def _bilinear(features: Tensor, image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Return the features of each box's image at its grid y (K, A) × x (K, B): (K, C, A, B)."""
    y_low, y_high, y_weight, y_inside = _neighbours(y, features.shape[2])
    x_low, x_high, x_weight, x_inside = _neighbours(x, features.shape[3])
    per_image = features.permute(0, 2, 3, 1)

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        return per_image[image[:, None, None], rows[:, :, None], columns[:, None, :]]

    down, across = y_weight[:, :, None, None], x_weight[:, None, :, None]
    top = at(y_low, x_low) * (1 - across) + at(y_low, x_high) * across
    bottom = at(y_high, x_low) * (1 - across) + at(y_high, x_high) * across
    inside = (y_inside[:, :, None] & x_inside[:, None, :])[..., None]
    return torch.where(inside, top * (1 - down) + bottom * down, 0.0).permute(0, 3, 1, 2)


def _neighbours(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the pixels on both sides of each position, the second one's weight, and whether it is inside."""
    inside = (position >= -1.0) & (position <= size)
    position = position.clamp(0, size - 1)
    low = position.floor().long()
    high = (low + 1).clamp(max=size - 1)
    return low, high, position - low, inside
