"""Analyzing any model: real values where needed, the model unmodified, and what is rejected."""

import warnings

import pytest
import torch
from torch import nn

import torchport
from analysis.quantized_engines import quantized_by_each
from torchport.errors import CaptureError, RecordError
from torchport.records import Analysis


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x) if x.sum() > 0 else x


def test_a_model_that_branches_on_values_runs_on_real_ones_and_says_so():
    model = Branches()
    analysis = torchport.analyze(model, (torch.ones(1, 4),))
    assert analysis.cost.flops == 2 * 4 * 4
    assert analysis.cost.values == analysis.modules.metadata.values == "real"
    assert "test_analyze_model.py" in analysis.cost.note
    assert torchport.analyze(model, (-torch.ones(1, 4),)).cost.flops == 0
    assert model.calls == 0


def test_a_branch_on_values_in_the_backward_pass_too():
    cost = torchport.analyze(Branches(), (torch.ones(1, 4),), backward=True).cost
    assert (cost.values, cost.backward_flops) == ("real", 2 * 4 * 4)


def test_shapes_that_depend_on_values():
    analysis = torchport.analyze(lambda x: torch.nonzero(x), (torch.tensor([1.0, 0.0, 2.0]),))
    assert analysis.modules.modules[0].output_shapes == ("2x1",)
    assert "DynamicOutputShapeException" in analysis.cost.note


def test_without_values_a_branch_on_them_is_refused():
    with pytest.raises(CaptureError, match=r"depends on the values.*load it on the CPU"):
        torchport.analyze(Branches().to("meta"), (torch.ones(1, 4, device="meta"),))


def test_a_model_that_uses_autograd_in_its_forward():
    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x):
            with torch.enable_grad():
                x = x.clone().requires_grad_()
                return torch.autograd.grad(self.layer(x).sum(), x)[0]

    cost = torchport.analyze(Force(), (torch.ones(2, 4),)).cost
    assert cost.flops == 2 * (2 * 4) + 2 * (2 * 4)
    assert "autograd" in cost.note


def test_the_model_is_not_modified():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.plain = torch.ones(4)
            self.history = []

        def forward(self, x):
            self.last = self.norm(x) * self.plain
            self.history.append(self.last)
            self.plain = self.last.sum(0)
            return self.last

    model = Keeps()
    plain, weight = model.plain, model.norm.weight
    weight.grad = gradient = torch.ones(4)
    generator = torch.get_rng_state()
    for backward in (False, True):
        torchport.analyze(model, (torch.ones(3, 4),), backward=backward)
    assert model.plain is plain
    assert model.norm.weight is weight
    assert weight.grad is gradient
    assert model.history == []
    assert not hasattr(model, "last")
    assert model.norm.num_batches_tracked == 0
    assert not model._forward_hooks
    assert not model.norm._forward_pre_hooks
    assert torch.equal(generator, torch.get_rng_state())
    assert model(torch.ones(3, 4)).shape == (3, 4)


def test_inputs_are_left_as_they_were():
    x = torch.ones(3)
    torchport.analyze(lambda x: x.add_(1), (x,))
    torchport.analyze(lambda x: x.add_(1) if x.sum() > 0 else x, (x,))
    assert torch.equal(x, torch.ones(3))


def test_weight_norm_by_hooks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.utils.weight_norm(nn.Linear(4, 4))
    weight = model.weight
    assert torchport.analyze(model, (torch.ones(2, 4),)).cost.flops == 2 * 2 * 4 * 4
    assert model.weight is weight


def test_a_scripted_model():
    model = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    analysis = torchport.analyze(model, (torch.ones(2, 4),))
    assert analysis.cost.flops == 2 * 2 * 4 * 4
    assert analysis.cost.parameters == 20
    assert model(torch.ones(2, 4)).shape == (2, 4)


def test_a_compiled_model_is_analyzed_as_the_original():
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
    analysis = torchport.analyze(model, (torch.ones(2, 4),))
    assert analysis.cost.flops == 2 * 2 * 4 * 4
    assert [op.op_name for op in analysis.ops.ops] == ["torch.nn.functional.linear", "torch.relu"]


def test_a_checkpointed_module_runs_its_forward_again():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=False)

    x = torch.ones(2, 4, requires_grad=True)
    cost = torchport.analyze(Checkpointed(), (x,), backward=True).cost
    layer = 2 * 2 * 4 * 4
    # Two gradients for each layer, and recomputing the first layer: torch stops once it has what it needs.
    assert (cost.flops, cost.backward_flops) == (7 * layer, 5 * layer)


def test_a_missing_argument_is_named():
    with pytest.raises(CaptureError, match=r"missing a required argument: 'x'"):
        torchport.analyze(Branches(), ())
    with pytest.raises(CaptureError, match=r"unexpected keyword argument 'mask'"):
        torchport.analyze(Branches(), (torch.ones(1, 4),), {"mask": torch.ones(1)})


def test_inputs_of_the_wrong_shape_are_named_with_the_module():
    with pytest.raises(CaptureError) as failure:
        torchport.analyze(nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), (torch.ones(2, 5),), name="net")
    assert "in 1 (Linear)" in str(failure.value)
    assert "input is float32[2, 5]" in str(failure.value)
    assert str(failure.value).startswith("net")


def test_a_lazy_module_is_refused():
    with pytest.raises(CaptureError, match="weight of a lazy module has no shape yet"):
        torchport.analyze(nn.LazyLinear(4), (torch.ones(2, 5),))


def test_nothing_to_differentiate_is_refused():
    with pytest.raises(CaptureError, match="no output has a gradient"):
        torchport.analyze(nn.ReLU(), (torch.ones(3),), backward=True)


def test_the_record_survives_json_and_files(tmp_path):
    analysis = torchport.analyze(nn.Linear(2, 3), (torch.ones(1, 2),), backward=True, name="linear")
    assert Analysis.from_json(analysis.to_json()) == analysis
    paths = analysis.save(tmp_path / "deep" / "folder")
    assert [path.name for path in paths] == ["unique_modules.json", "pytorch_ops.json", "cost.json"]
    assert {path.name for path in (tmp_path / "deep" / "folder").iterdir()} == {path.name for path in paths}
    html = analysis._repr_html_()
    assert "<td>9</td>" in html
    assert "<td>1x3</td>" in html


def test_a_directory_that_cannot_be_written_is_left_alone(tmp_path):
    analysis = torchport.analyze(nn.Linear(2, 3), (torch.ones(1, 2),))
    (tmp_path / "cost.json").mkdir()
    with pytest.raises(RecordError, match=r"cost\.json: cannot be written"):
        analysis.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cost.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        analysis.save(tmp_path / "file")


def test_the_roofline_by_hand():
    cost = torchport.analyze(nn.Linear(8, 5), (torch.ones(3, 8),)).cost
    flops, moved = 2 * 3 * 8 * 5, 4 * (3 * 8 + 8 * 5 + 5 + 3 * 5)
    bound = cost.roofline(peak_flops=flops, bandwidth=2 * moved)  # arithmetic takes 1 s, transfer 0.5 s
    assert (bound.seconds, bound.compute_seconds, bound.memory_seconds) == (1.0, 1.0, 0.0)
    starved = cost.roofline(peak_flops=4 * flops, bandwidth=moved)
    assert (starved.seconds, starved.compute_seconds, starved.memory_seconds) == (1.0, 0.0, 1.0)
    assert starved.ridge == 4 * flops / moved
    with pytest.raises(RecordError, match="must be positive"):
        cost.roofline(0, 1)


def test_a_modules_cost_includes_its_submodules():
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), nn.Linear(4, 2))
    rows = {row.path: row for row in torchport.analyze(model, (torch.ones(1, 8),)).cost.modules}
    assert {path: row.flops for path, row in rows.items()} == {
        "(root)": 64 + 16,
        "0": 64,
        "0.0": 64,
        "0.1": 0,
        "1": 16,
    }
    assert {path: row.parameters for path, row in rows.items()} == {
        "(root)": 36 + 10,
        "0": 36,
        "0.0": 36,
        "0.1": 0,
        "1": 10,
    }
    assert rows["0"].output_shapes == ("1x4",)
    assert rows["0"].output_bytes == 16


class Quantizable(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantize = torch.ao.quantization.QuantStub()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(8, 4)
        self.dequantize = torch.ao.quantization.DeQuantStub()

    def forward(self, x):
        return self.dequantize(self.linear(self.convolution(self.quantize(x)).mean((2, 3))))


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_model_whose_weights_are_packed():
    x = torch.rand(1, 3, 8, 8)

    def quantize():
        model = Quantizable().eval()
        model.qconfig = torch.ao.quantization.default_qconfig
        prepared = torch.ao.quantization.prepare(model)
        prepared(x)
        return torch.ao.quantization.convert(prepared)

    for name, quantized in quantized_by_each(quantize, x):
        analysis = torchport.analyze(quantized, (x,))
        assert analysis.cost.flops == 2 * (8 * 6 * 6) * (3 * 9) + 2 * 8 * 4, name
        assert analysis.cost.uncounted == {}, name
        assert "torch.ops.quantized.conv2d" in [op.op_name for op in analysis.ops.ops], name


def test_a_function_with_a_backward_of_its_own_belongs_to_its_module():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient * ctx.saved_tensors[0]

    class Squares(nn.Module):
        def forward(self, x):
            return Square.apply(x)

    model = nn.Sequential(nn.Linear(4, 4), Squares(), nn.Tanh())
    ops = torchport.analyze(model, (torch.ones(2, 4),), backward=True).cost.ops
    assert {op.module_path for op in ops if op.phase == "backward" and op.name.startswith("mul")} == {"1"}
