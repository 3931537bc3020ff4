"""Half-precision products are computed in float32, with weights that stay in half precision."""

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino import compile_model, compressed_weights
from torchport.targets.openvino.library import core, openvino

X = torch.randn(3, 512, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def written(monkeypatch):
    """Have products rewritten in float32 on every processor."""
    monkeypatch.setattr(compile_model, "computes_halves", lambda: False)


def model(dtype):
    torch.manual_seed(0)
    layers = nn.Linear(512, 600), nn.GELU(), nn.Linear(600, 700, bias=False), nn.Linear(700, 50)
    return nn.Sequential(*layers).to(dtype).eval()


def nodes_of(made, kind):
    return [node for node in made.get_ordered_ops() if node.get_type_name() == kind]


def product(dtype, size):
    opset = openvino().opset13
    x = opset.parameter([-1, size], dtype)
    weight = opset.constant(numpy.eye(size, dtype=numpy.float32) * 3, dtype)
    return openvino().Model([opset.matmul(x, weight, False, True)], [x], "product")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_are_as_close_to_float32_as_torchs(written, dtype):
    made = model(dtype)
    x = X.to(dtype)
    # The options make it another island than any that is loaded.
    compiled = torchport.compile(made, (x,), options={"cache": False, "threads": 1, "speed_trial": False})
    assert (compiled.coverage.ops_remain, compiled.fallbacks.fallbacks) == (0, 0)
    with torch.no_grad():
        own, eager = compiled(x), made(x)
        exact = model(dtype).float()(x.float())
    assert own.dtype == dtype
    assert (own.float() - exact).norm() <= 2 * (eager.float() - exact).norm()
    for _ in range(3):
        assert torch.equal(compiled(x), own)  # the state does not affect later calls
    [island] = compiled._first.program.islands.values()
    assert not island.runner.compiled.may_export  # it would contain weights in float32


def test_files_hold_weights_as_they_are(written, tmp_path):
    made, x = model(torch.bfloat16), X.to(torch.bfloat16)
    compiled = torchport.compile(made, (x,), options={"cache": False, "speed_trial": False})
    torchport.save(compiled, tmp_path / "half.pt2")
    size = sum(weight.nbytes for weight in made.parameters())
    assert (tmp_path / "half.pt2").stat().st_size < 1.3 * size
    assert torch.equal(torchport.load(tmp_path / "half.pt2")(x), compiled(x))


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_weights_stay_in_half_precision(name):
    dtype = getattr(openvino().Type, name)
    made = compressed_weights.compute_in_float32(product(dtype, 512))
    [found] = nodes_of(made, "MatMul")[:1]
    assert found.get_output_element_type(0) == openvino().Type.f32
    weight = found.input_value(1).get_node()
    assert "decompression_0" in weight.get_rt_info()
    assert weight.input_value(0).get_element_type() == dtype
    request = core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    values = openvino().Tensor(dtype, [2, 512])
    values.data[:] = 0
    for _ in range(2):
        [result] = request.infer([values]).values()
        assert not numpy.asarray(result).any()
    assert len(request.query_state()) == 1


def test_a_model_with_small_weights_is_left_alone():
    made = product(openvino().Type.bf16, 64)
    before = [node.get_type_name() for node in made.get_ordered_ops()]
    assert compressed_weights.compute_in_float32(made) is None
    assert [node.get_type_name() for node in made.get_ordered_ops()] == before


def test_a_model_in_float32_is_left_alone():
    assert compressed_weights.compute_in_float32(product(openvino().Type.f32, 512)) is None


def test_all_between_inputs_and_results_is_in_float32():
    opset, library = openvino().opset13, openvino()
    table = opset.constant(numpy.eye(512, dtype=numpy.float32) * 3, library.Type.bf16)
    ids = opset.parameter([-1], library.Type.i64)
    x = opset.parameter([-1, 512], library.Type.bf16)
    rows = opset.gather(table, ids, opset.constant(0))
    product = opset.matmul(opset.add(rows, x), table, False, True)  # the same weight, as with tied embeddings
    made = compressed_weights.compute_in_float32(library.Model([opset.relu(product)], [ids, x], "tied"))
    assert made.outputs[0].get_element_type() == library.Type.bf16
    assert made.inputs[1].get_element_type() == library.Type.bf16
    for kind in ("Add", "MatMul", "Relu"):
        [found] = nodes_of(made, kind)
        assert found.get_output_element_type(0) == library.Type.f32
    [looked_up] = nodes_of(made, "Gather")
    assert looked_up.get_output_element_type(0) == library.Type.bf16  # the rows are cast, not the table
