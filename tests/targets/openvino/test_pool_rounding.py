"""Pools that round their size up, rewritten as pools that round down."""

import itertools

import torch
import torch.nn.functional as F

from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino.pool_rounding import pads_at_end

OPENVINO = find("openvino")
OPTIONS = OPENVINO.make_options({})


def layers(function, *args):
    """Build a function as one island; return its result and OpenVINO's XML."""
    island = island_of(function, *args)
    artifact = OPENVINO.build(island, OPTIONS)
    text = OPENVINO.readable(artifact)["model.xml"].decode()
    return OPENVINO.load(artifact, island.inputs, island.outputs, OPTIONS)(args), text


def test_the_windows_are_those_of_torch():
    for size, window, stride, dilation in itertools.product(range(4, 12), (1, 2, 3), (1, 2, 3, 4), (1, 2)):
        for pad in range(window // 2 + 1):
            if size + 2 * pad < dilation * (window - 1) + 1:
                continue
            attributes = {
                "kernel": [window], "strides": [stride], "dilations": [dilation],
                "pads_begin": [pad], "pads_end": [pad],
            }  # fmt: skip
            [end] = pads_at_end([size], attributes)
            x = -torch.rand(1, 1, size)
            padded = F.pad(x, (pad, end), value=float("-inf"))
            expected = F.max_pool1d(x, window, stride, pad, dilation, ceil_mode=True)
            assert torch.equal(F.max_pool1d(padded, window, stride, 0, dilation), expected), attributes


def test_maxima_of_any_window_that_hangs_over_are_torchs_and_round_down():
    x, volume = -torch.rand(1, 2, 10, 11), -torch.rand(1, 2, 6, 7, 8)

    def pools(x, volume):
        return (
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
            F.max_pool2d(x, (2, 3), (4, 2), dilation=2, ceil_mode=True),
            F.max_pool3d(volume, 3, 2, ceil_mode=True),
        )

    found, text = layers(pools, x, volume)
    for mine, eager in zip(found, pools(x, volume), strict=True):
        assert torch.equal(mine, eager)
    assert text.count('rounding_type="floor"') == 5
    assert "ceil" not in text


def test_means_round_down_where_windows_end_with_the_image():
    x = torch.rand(1, 2, 10, 10)
    found, text = layers(lambda x: F.avg_pool2d(x, 2, ceil_mode=True), x)
    torch.testing.assert_close(found, [F.avg_pool2d(x, 2, ceil_mode=True)])
    assert "ceil" not in text
