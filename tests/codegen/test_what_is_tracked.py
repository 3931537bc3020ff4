"""Code besides module calls is generated too, and works for other sizes."""

import dataclasses

import pytest
import torch
from torch import nn

from codegen import models
from codegen.models import Batch, Lambda, Result
from codegen.round_trip import assert_round_trip, generate
from torchport import trace_graph
from torchport.errors import CaptureError, CodegenError


def both(tmp_path, function, *inputs, others=(), **parts):
    model = Lambda(function, **parts).eval()
    return assert_round_trip(model, inputs, tmp_path, others=others)


def test_sizes_and_what_is_computed_from_them(tmp_path):
    texts = both(tmp_path, models.patches, torch.rand(2, 3, 8, 6), others=[(torch.rand(5, 3, 4, 12),)])
    assert "height // 2" in texts["hierarchical"]


def test_numel_of_a_tensor_and_of_its_shape(tmp_path):
    both(tmp_path, models.counts, torch.rand(2, 3), others=[(torch.rand(4, 5),)])


def test_in_place_writes_and_views(tmp_path):
    texts = both(tmp_path, models.writes, torch.rand(2, 3), others=[(torch.rand(3, 4),)])
    assert "x[:, 0] = 1.5" in texts["hierarchical"]


def test_a_property_that_is_written(tmp_path):
    texts = both(tmp_path, models.writes_a_property, torch.rand(2, 3), others=[(torch.rand(3, 4),)])
    assert "y.data = " in texts["hierarchical"]
    x = torch.rand(2, 3)
    graph = trace_graph(Lambda(models.writes_a_property).eval(), (x,))
    assert torch.equal(graph(x), (x + 1) * 3)


def test_buffers_that_forward_updates(tmp_path):
    for hierarchy in (True, False):
        model = Lambda(models.updates, count=torch.zeros((), dtype=torch.int64), mean=torch.zeros(3))
        x = torch.rand(2, 3)
        _, made = generate(model, (x,), tmp_path, hierarchy=hierarchy)
        assert model.count == 0  # tracing and checking did not change the model
        for _ in range(2):  # state carries over between calls here too
            expected, count = model(x)
            ours, our_count = made(x)
            assert torch.equal(ours, expected)
            assert our_count == count
        assert made.count == 2


def test_autocast_and_grad_modes(tmp_path):
    model = Lambda(models.modes, proj=nn.Linear(3, 3)).eval()
    texts = assert_round_trip(model, (torch.rand(2, 3),), tmp_path)
    assert 'with torch.autocast("cpu", dtype=torch.bfloat16):' in texts["hierarchical"]
    assert "with torch.no_grad():\n            scale" in texts["hierarchical"]
    _, made = generate(model, (torch.rand(2, 3),), tmp_path)
    y, _ = made(torch.rand(2, 3))
    assert y.requires_grad
    assert y.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_autocast_of_two_devices(tmp_path):
    model = Lambda(models.autocast_of_two_devices, proj=nn.Linear(3, 3)).eval()
    texts = assert_round_trip(model, (torch.rand(2, 3),), tmp_path)
    body = texts["hierarchical"].partition("def forward(self, x):")[2]
    modes = [line.strip() for line in body.splitlines() if "with torch.autocast" in line]
    on_cpu, on_cuda = ("cpu", "bfloat16"), ("cuda", "float16")
    assert modes == [
        f'with torch.autocast("{device}", dtype=torch.{dtype}):'
        for device, dtype in (on_cpu, on_cuda, on_cpu)
    ]


def test_dtypes_and_devices_follow_the_input(tmp_path):
    texts = both(tmp_path, models.kinds, torch.rand(2, 3), others=[(torch.rand(2, 4, dtype=torch.float64),)])
    assert "dtype=x.dtype, device=x.device" in texts["hierarchical"]


def test_random_ops_come_in_the_same_order(tmp_path):
    both(tmp_path, models.randoms, torch.rand(4, 3), others=[(torch.rand(2, 5),)])


def test_constants_are_inlined_if_small_and_weights_if_large(tmp_path):
    table = torch.arange(100)
    model = Lambda(models.constants)
    model.table = table
    texts = assert_round_trip(model, (torch.rand(4, 3),), tmp_path)
    assert "torch.tensor([0.25, 0.5, 1.0])" in texts["hierarchical"]
    assert 'self.register_buffer("table", torch.empty(100, dtype=torch.int64))' in texts["hierarchical"]
    assert {"table", "large"} <= set(torch.load(tmp_path / "net.pth"))


def test_unpacked_results_dicts_lists_and_none(tmp_path):
    texts = both(tmp_path, models.parts, torch.rand(2, 6), others=[(torch.rand(5, 9),)])
    assert "values, indices = x.max(dim=1)" in texts["hierarchical"]


def test_torchs_own_result_types(tmp_path):
    texts = both(tmp_path, models.returns_what_torch_returns, torch.rand(3, 3))
    assert "torch.linalg.slogdet(x)" in texts["flat"]
    assert "torch.return_types.max(" in texts["flat"]


def test_a_buffer_that_is_updated_within_an_expression(tmp_path):
    for hierarchy in (True, False):
        model = Lambda(models.counts_in_an_expression, count=torch.ones(()))
        _, made = generate(model, (torch.rand(2, 3),), tmp_path, hierarchy=hierarchy)
        x = torch.ones(2, 3)
        assert torch.equal(made(x), torch.full((2, 3), 6.0))  # 1 * 2 + 4
        assert torch.equal(made(x), torch.full((2, 3), 15.0))  # 1 * 5 + 10
        assert made.count == 10


def test_losses_are_modules_like_others(tmp_path):
    texts = both(
        tmp_path,
        models.losses,
        torch.rand(4, 3),
        torch.tensor([0, 2, 1, -1]),
        cross_entropy=nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1),
        mean_squares=nn.MSELoss(reduction="sum"),
    )
    assert "nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1)" in texts["flat"]


class WithDataclasses(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3, 3)

    def forward(self, batch, extra, *, scale, flag=True):
        x = self.proj(batch.image) * batch.mask + extra["bias"][0]
        return Result(logits=x * scale if flag else x, hidden=(x,))


def test_dataclass_and_dict_inputs_and_outputs_and_numbers(tmp_path):
    model = WithDataclasses().eval()
    args = (Batch(torch.rand(2, 3), torch.ones(2, 3)), {"bias": [torch.rand(3)]})
    kwargs = {"scale": 2.5, "flag": True}
    for hierarchy in (True, False):
        _, made = generate(model, args, tmp_path, kwargs, hierarchy=hierarchy)
        for scale in (2.5, 4.0):  # a number passed as input is not a constant
            expected = model(*args, scale=scale)
            result = made(*args, scale=scale, flag=True)
            assert dataclasses.is_dataclass(result)
            assert torch.equal(result.logits, expected.logits)
        with pytest.raises(ValueError, match="flag"):
            made(*args, scale=1.0, flag=False)


def test_packed_sequences(tmp_path):
    rnn = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
    texts = both(tmp_path, models.packed, torch.rand(2, 3, 4), rnn=rnn)
    assert "nn.LSTM(4, 5, batch_first=True, bidirectional=True)" in texts["hierarchical"]


def test_multihead_attention_and_its_fast_path(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    wrapped = Lambda(lambda self, x: self.encoder(x), encoder=model).eval()
    texts = assert_round_trip(wrapped, (torch.rand(2, 5, 8),), tmp_path, others=[(torch.rand(3, 7, 8),)])
    assert "nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)" in texts["flat"]
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    attend = Lambda(lambda self, x: self.attention(x, x, x)[0], attention=attention).eval()
    assert_round_trip(attend, (torch.rand(2, 5, 8),), tmp_path)


def test_checkpoint(tmp_path):
    both(tmp_path, models.checkpointed, torch.rand(2, 3), proj=nn.Linear(3, 3))


def test_custom_ops_and_autograd_functions(tmp_path):
    texts = both(tmp_path, models.custom, torch.rand(2, 3))
    assert "import codegen.models" in texts["hierarchical"]
    assert "torch.ops.torchport_tests.twice(x)" in texts["hierarchical"]
    assert "from codegen.models import Cube" in texts["hierarchical"]
    assert "Cube.apply(x)" in texts["flat"]
    x = torch.full((1,), 2.0, requires_grad=True)
    graph = trace_graph(Lambda(lambda self, x: models.Cube.apply(x)), (torch.rand(2),))
    graph(x).backward()
    assert x.grad == 1  # its own backward, and not 3 x²


def test_vmap(tmp_path):
    both(tmp_path, models.vectorised, torch.rand(4, 3))


def test_derivatives_are_refused_with_their_line():
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in .*torch\.func \(grad\)"):
        trace_graph(Lambda(models.differentiates), (torch.rand(3),))


def test_code_that_fails_is_refused_with_its_statement(tmp_path):
    with pytest.raises(CodegenError, match=r"line \d+: return grad\(.*fails: RuntimeError"):
        generate(Lambda(models.asks_autograd), (torch.rand(3),), tmp_path)
    assert not list(tmp_path.iterdir())


def test_hooks_are_traced(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] - 0.5,))
    assert_round_trip(model, (torch.rand(2, 3),), tmp_path)


@pytest.mark.parametrize(
    "apply", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm]
)
def test_parametrizations(tmp_path, apply):
    model = Lambda(lambda self, x: self.proj(x), proj=apply(nn.Linear(3, 3))).eval()
    assert_round_trip(model, (torch.rand(2, 3),), tmp_path)


def test_shared_modules_and_tied_weights(tmp_path):
    embed = nn.Embedding(10, 4)
    head = nn.Linear(4, 10, bias=False)
    head.weight = embed.weight
    block = nn.Linear(4, 4)
    model = Lambda(
        lambda self, x: self.head(self.second(self.first(self.embed(x)))),
        embed=embed,
        first=nn.Sequential(block, nn.ReLU()),
        second=nn.Sequential(block, nn.Tanh()),
        head=head,
    ).eval()
    for hierarchy in (True, False):
        _, made = generate(model, (torch.arange(6).view(2, 3),), tmp_path, hierarchy=hierarchy)
        assert made.head.weight is made.embed.weight
        parameters = sum(parameter.numel() for parameter in made.parameters())
        assert parameters == sum(parameter.numel() for parameter in model.parameters())


def test_data_dependent_branches_are_refused_with_their_line():
    model = Lambda(models.branches)
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in branches.*values of a tensor"):
        trace_graph(model, (torch.rand(3),))
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in reads_a_number"):
        trace_graph(Lambda(models.reads_a_number), (torch.rand(3),))


def test_a_specialized_branch_has_a_guard(tmp_path):
    for hierarchy in (True, False):
        model = Lambda(models.branches)
        _, made = generate(
            model, (torch.ones(3),), tmp_path, hierarchy=hierarchy, on_data_dependent="specialize"
        )
        assert torch.equal(made(torch.full((3,), 2.0)), torch.full((3,), 3.0))
        with pytest.raises(ValueError, match=r"models\.py:\d+"):
            made(-torch.ones(3))
    graph = trace_graph(model, (torch.ones(3),), on_data_dependent="specialize")
    with pytest.raises(Exception, match="traced with True"):
        graph(-torch.ones(3))


def test_a_branch_on_sizes_has_a_guard(tmp_path):
    model = Lambda(models.branches_on_sizes)
    for hierarchy in (True, False):
        _, made = generate(model, (torch.rand(2, 6),), tmp_path, hierarchy=hierarchy)
        x = torch.rand(3, 10)
        assert torch.equal(made(x), model(x))
        with pytest.raises(ValueError, match=r"models\.py:\d+"):
            made(torch.rand(3, 7))


def test_a_loop_over_a_size_is_specialized_to_that_size(tmp_path):
    model = Lambda(models.loops_over_sizes)
    for hierarchy in (True, False):
        _, made = generate(model, (torch.rand(3, 4),), tmp_path, hierarchy=hierarchy)
        x = torch.rand(3, 9)
        assert torch.equal(made(x), model(x))
        with pytest.raises(ValueError, match="this code is specialized to"):
            made(torch.rand(4, 4))


def test_results_whose_shape_depends_on_values(tmp_path):
    x = torch.linspace(0, 1, 12).view(3, 4)
    both(tmp_path, models.picks, x, others=[(x.flip(0) * 0.7,), (torch.rand(5, 6),)])


def test_scripted_functions(tmp_path):
    both(tmp_path, models.scripted, torch.rand(3, 4), others=[(torch.rand(3, 4),)])


def test_a_data_dependent_loop_is_refused():
    with pytest.raises(CaptureError, match="values of a tensor"):
        trace_graph(Lambda(models.loops_over_what_it_finds), (torch.linspace(0, 1, 12).view(3, 4),))


def test_a_buffers_value_may_be_read_unless_it_is_updated(tmp_path):
    both(tmp_path, models.reads_a_weight, torch.rand(3), count=torch.zeros(()))
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in initialises_once.*buffer count"):
        trace_graph(Lambda(models.initialises_once, count=torch.zeros(())), (torch.rand(3),))


def test_inputs_with_all_equal_values_are_varied_too():
    for x in (torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool)):
        with pytest.raises(CaptureError, match="values of a tensor"):
            trace_graph(Lambda(models.loops_over_what_it_finds), (x,))


def test_a_model_that_accepts_no_other_values_is_refused():
    x = torch.tensor([0.1, 0.2, 0.6])
    with pytest.raises(CaptureError, match="does not run on values other than the example's") as caught:
        trace_graph(Lambda(models.takes_its_example_only), (x,))
    assert 'on_data_dependent="specialize"' in caught.value.remedy
