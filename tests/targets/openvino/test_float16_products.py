"""Products with weights in float16, as requested; a processor without float16 computes them in float32."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torchport
from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino import float16_products
from torchport.targets.openvino import target as target_module
from torchport.targets.openvino.library import core, openvino

FEATURES, RESULTS = 1100, 256
OPTIONS = {"cache": False, "speed_trial": False, "precision": "float16"}
BOTH = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])


@pytest.fixture(autouse=True)
def any_processor(monkeypatch):
    """Allow float16 to be requested on any processor."""
    monkeypatch.setattr(target_module, "check_device", lambda device, precision: None)


class Product(nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        self.linear = nn.Linear(FEATURES, RESULTS)
        if weight is not None:
            self.linear.weight.data = weight.expand(RESULTS, FEATURES).clone()

    def forward(self, x):
        return torch.sigmoid(self.linear(x) / 1e5)


def made(model, x, **options):
    """Return the loaded island of a model."""
    target = find("openvino")
    island = island_of(model.to(x.dtype).eval(), x)
    chosen = target.make_options({"precision": "float16", **options})
    return target.load(target.build(island, chosen), island.inputs, island.outputs, chosen)


def is_close(model, x, result):
    """Whether a result equals float32's up to half precision's rounding."""
    with torch.no_grad():
        wide = copy.deepcopy(model).float()(x.float())
    # Float16 and bfloat16 round a product by about 0.2 %. Only a sigmoid follows.
    return bool(torch.allclose(result.float(), wide, rtol=0.01, atol=0.0)) and result.dtype is x.dtype


def numbers(dtype=torch.bfloat16):
    return torch.randn(3, FEATURES, generator=torch.Generator().manual_seed(1)).to(dtype)


@BOTH
def test_products_are_in_float16(dtype):
    model = Product()
    runner = made(model, numbers(dtype))
    assert runner.compiled.has_half
    assert is_close(model, numbers(dtype), runner([numbers(dtype)])[0])
    assert runner.compiled.has_half


def test_the_pieces_of_a_product_are_short():
    opset = openvino().opset13
    x = opset.parameter([-1, FEATURES], openvino().Type.bf16)
    weight = opset.convert(opset.constant(torch.ones(FEATURES, RESULTS).numpy()), "bf16")
    core_model = openvino().Model([opset.matmul(x, weight, False, False)], [x], "product")
    from openvino._offline_transformations import apply_moc_transformations

    apply_moc_transformations(core_model, cf=True)
    weights = float16_products.write_half_products(core_model)
    assert weights is not None
    products = [node for node in core_model.get_ops() if node.get_type_name() == "MatMul"]
    lengths = [node.get_input_partial_shape(0)[1].get_length() for node in products]
    assert sorted(lengths) == [FEATURES - float16_products.MOST_ADDED, float16_products.MOST_ADDED]
    assert {node.get_output_element_type(0) for node in products} == {openvino().Type.f16}
    assert core_model.output(0).get_element_type() == openvino().Type.bf16
    compiled = core().compile_model(core_model, "CPU", float16_products.KEEP_TENSOR_PRECISION)
    ones = openvino().Tensor(
        torch.ones(2, FEATURES, dtype=torch.bfloat16).view(torch.int16).numpy().view("uint16"),
        [2, FEATURES],
        openvino().Type.bf16,
    )
    request = compiled.create_infer_request()
    request.set_input_tensor(ones)
    request.infer()
    assert float(request.get_output_tensor(1).data) == 2 * RESULTS * FEATURES


@BOTH
@pytest.mark.parametrize("large", ["weights", "inputs"])
def test_what_is_too_large_for_float16_is_computed_in_float32(large, dtype):
    # The sigmoid of infinity is 1, so the overflow would go unnoticed.
    weight = torch.full((FEATURES,), 100.0 if large == "weights" else 1e-4)
    x = torch.full((3, FEATURES), 1.0 if large == "weights" else 1e6).to(dtype)
    model = Product(weight)
    runner = made(model, numbers(dtype))
    for given in (numbers(dtype), x, x, numbers(dtype)):
        assert is_close(model, given, runner([given])[0])


def test_threads_may_find_that_something_is_too_large_at_the_same_time():
    model = Product(torch.full((FEATURES,), 100.0))
    runner = made(model, numbers())
    x = torch.ones(3, FEATURES, dtype=torch.bfloat16)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda index: runner([x if index % 2 else numbers()])[0], range(24)))
    assert all(is_close(model, x if index % 2 else numbers(), one) for index, one in enumerate(found))


def test_an_infinity_is_as_in_eager_torch():
    model = Product(torch.ones(FEATURES)).to(torch.bfloat16)
    x = numbers()
    x[0, 0] = torch.inf
    compiled = torchport.compile(model, (numbers(),), options=OPTIONS)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("weight", [1e5, 1e-9], ids=["large", "tiny"])
def test_weights_that_float16_does_not_hold_stay(weight):
    x = numbers() / 100
    model = Product(torch.linspace(0, weight, FEATURES))
    assert not made(model, x).compiled.has_half
    compiled = torchport.compile(model, (x,), options=OPTIONS)
    assert is_close(model, x, compiled(x))


def test_models_in_float16_are_computed_as_openvino_does():
    assert not made(Product(), numbers(torch.float16)).compiled.has_half
    assert not made(Product(), numbers(), precision="float32").compiled.has_half


@pytest.mark.parametrize("key", ["INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT"])
def test_who_sets_openvino_s_own_property_gets_it(key):
    value = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "PERFORMANCE"}[key]
    assert not made(Product(), numbers(), config={key: value}).compiled.has_half


def test_what_was_compiled_anew_is_not_kept_in_a_file():
    model, target = Product(torch.full((FEATURES,), 100.0)), find("openvino")
    island = island_of(model.to(torch.bfloat16).eval(), numbers())
    options = target.make_options({"precision": "float16"})
    artifact = target.build(island, options)
    runner = target.load(artifact, island.inputs, island.outputs, options)
    runner([torch.ones(3, FEATURES, dtype=torch.bfloat16)])
    assert target.embed(artifact, runner, options) is artifact


def test_a_sum_over_inputs_does_not_overflow_as_it_would_in_float16():
    compiled = torchport.compile(Product(), (numbers(torch.float32),), options=OPTIONS)
    compiled(1000 * numbers(torch.float32))
    assert compiled.fallbacks.fallbacks == 0


def test_a_package_has_them_too(tmp_path):
    model = Product().to(torch.bfloat16)
    torchport.save(torchport.compile(model, (numbers(),), options=OPTIONS), tmp_path / "one.pt2")
    loaded = torchport.load(tmp_path / "one.pt2")
    assert is_close(model, numbers(), loaded(numbers()))
    [runner] = [island.runner for made in loaded._programs for island in made.program.islands.values()]
    assert runner.compiled.has_half
