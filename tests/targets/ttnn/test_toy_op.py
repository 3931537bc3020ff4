"""Adding an op to ttnn takes its rule and its function, and no other edit."""

import pytest
import torch

import torchport
from targets.ttnn.programs import compiled_for, functions_in, program_of, random
from torchport.errors import TargetError
from torchport.targets.ttnn import functions
from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.l1_placement import L1
from torchport.targets.ttnn.ops import RULES
from torchport.targets.ttnn.ops.activation import unary
from torchport.targets.ttnn.program_check import read_program
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import lowers
from torchport.targets.ttnn.simulator.tensors import FLOATS, hold, need_dtype


@torch.library.custom_op("toy_op::softened", mutates_args=())
def softened(x: torch.Tensor, by: float) -> torch.Tensor:
    return x / (by + x.abs())


@softened.register_fake
def _(x, by):
    return torch.empty_like(x)


@pytest.fixture
def toy_op():
    """Register an op as an edit of `simulator/` and `ops/` would, and remove it after the test."""
    before = dict(functions.FUNCTIONS), dict(RULES)

    @function("softened", placeable=True, flops=lambda call, tensors: 1e12)
    def kernel(tensor, *, alpha):
        need_dtype(tensor, *FLOATS)
        if alpha <= 0:
            refuse("argument", "the divisor could be 0")
        return hold(tensor.data / (alpha + tensor.data.abs()), tensor.dtype, tensor.layout)

    @lowers("toy_op.softened.default", "f")
    def lower(lowering, node, given):
        return unary(lowering, node, "softened", alpha=float(given["by"]))

    yield
    for registry, kept in zip((functions.FUNCTIONS, RULES), before, strict=True):
        registry.clear()
        registry.update(kept)


def model(x):
    return torch.relu(softened(x * 2, 0.5))


X = random(4, 40)


def test_without_it_the_op_stays_on_the_host():
    coverage = torchport.explain(model, (X,), target="ttnn")
    assert [row.op for row in coverage.stayed] == ["toy_op.softened.default"]


@pytest.mark.usefixtures("toy_op")
def test_with_it_the_op_is_compiled_run_saved_and_loaded(tmp_path):
    compiled = compiled_for(model, X, check=True, memory="l1", dtype="float32")
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(compiled(X), model(X))
    program = program_of(compiled)
    assert functions_in(program) == ["mul", "softened", "relu"]
    assert dict(program.calls[1].kwargs) == {"alpha": 0.5, "memory_config": L1}
    assert compiled.simulated_seconds > 1e12 / (74e12 * 0.35 * 0.25)
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(X), model(X))
    assert "ttnn.softened(mul, alpha=0.5" in compiled.emit(tmp_path / "model.py")[0].read_text()


@pytest.mark.usefixtures("toy_op")
def test_what_its_kernel_refuses_stays_on_the_host():
    [row] = torchport.explain(lambda x: softened(x, 0.0), (X,), target="ttnn").stayed
    assert (row.reason, row.detail) == ("argument", "the divisor could be 0")


@pytest.mark.usefixtures("toy_op")
def test_a_program_that_was_stored_is_refused_once_the_op_is_gone():
    built = compiled_for(model, X)
    program = program_of(built)
    del functions.FUNCTIONS["softened"]
    with pytest.raises(TargetError, match="is not a function"):
        read_program(program.to_json())


def test_what_is_forgotten_is_an_error_at_import():
    with pytest.raises(TypeError, match="placeable"):
        function("softened", flops=None)
    with pytest.raises(TypeError, match="flops"):
        function("softened", placeable=True)
    with pytest.raises(ValueError, match="list them in keywords="):
        function("softened", placeable=True, flops=None)(lambda x, **rest: x)
    with pytest.raises(ValueError, match=r"ttnn\.relu already has a kernel"):
        function("relu", placeable=True, flops=None)(lambda x: x)
    with pytest.raises(ValueError, match=r"two rules for aten\.relu\.default"):
        lowers("relu.default", "f")(lambda lowering, node, given: None)
    with pytest.raises(ValueError, match="no kind of tensors 'x'"):
        lowers("toy_op.softened.default", "fx")(lambda lowering, node, given: None)
