"""Op times from OpenVINO's performance counters."""

from datetime import timedelta
from types import SimpleNamespace

from torchport.records import OpTime
from torchport.targets.openvino.profile import times_of


def entry(name, kind, kernel, microseconds):
    return SimpleNamespace(
        node_name=name, node_type=kind, exec_type=kernel, real_time=timedelta(microseconds=microseconds)
    )


def test_a_kernel_that_lost_its_name_has_that_of_what_was_fused_into_it():
    found = times_of(
        [
            entry("x", "Parameter", "unknown_f32", 0),
            entry("Multiply_1", "Convolution", "brgconv_avx512_f32", 330),
            entry("relu/aten.relu.default/Relu", "Relu", "undef", 0),
            entry("Multiply_2", "Convolution", "ref_any_f32", 30),
            entry("view/aten.view.default/Reshape", "Reshape", "unknown_f32", 0),
            entry("pool/aten.max_pool2d.default/MaxPool", "MaxPool", "jit_f32", 5),
            entry("tanh/aten.tanh.default/Tanh", "Tanh", "undef", 0),
        ]
    )
    assert found == [
        OpTime("relu", 330e-6, "Convolution brgconv_avx512_f32", "f32"),
        OpTime("", 30e-6, "Convolution ref_any_f32", "f32", True),
        OpTime("pool", 5e-6, "MaxPool jit_f32", "f32"),
    ]
