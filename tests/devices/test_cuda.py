"""Models and inputs on CUDA, with targets whose islands run in CPU memory."""

import pytest
import torch
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport.errors import CaptureError, CompileError, TorchportError
from torchport.targets.inductor.cuda_graph import CudaGraph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


class Mixed(nn.Module):
    """Computes on the CPU, then on CUDA, and comes back."""

    def forward(self, x):
        y = torch.relu(x * 2).cuda()
        return (y + 1).cpu().tanh()


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).cuda().eval()


@pytest.fixture
def x():
    return torch.randn(2, 8, device="cuda")


def test_compile_refuses_with_the_remedy(model, x):
    with pytest.raises(
        CompileError, match=r"is on cuda:0, and the target host takes CPU tensors only"
    ) as caught:
        torchport.compile(model, (x,), target="host")
    assert ".cpu()" in caught.value.remedy


def test_what_is_moved_to_the_cpu_compiles(model, x):
    moved = torchport.compile(model.cpu(), (x.cpu(),), target="host")
    torch.testing.assert_close(moved(x.cpu()), model(x.cpu()))
    with pytest.raises(TorchportError):
        moved(x)


def test_a_model_that_moves_tensors_itself_keeps_those_ops_on_the_host():
    x = torch.randn(3)
    compiled = torchport.compile(Mixed(), (x,), target="host")
    torch.testing.assert_close(compiled(x), Mixed()(x))
    assert 0 < compiled.coverage.ops_remain < compiled.coverage.ops_before
    assert any("a tensor is on cuda" in row.detail for row in compiled.coverage.stayed)


@pytest.mark.parametrize("training", [False, True])
def test_torch_compile_runs_with_eager_torch_and_says_so(training, model, x, torch_compile, caplog):
    compiled = torch_compile(model, "host")
    with torch.set_grad_enabled(training):
        ours = compiled(x)
    torch.testing.assert_close(ours, model(x))
    if training:
        gradients = torch.autograd.grad(ours.sum(), list(model.parameters()))
        expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        torch.testing.assert_close(gradients, expected)
    record = torchport.fallbacks()
    assert record.fallbacks >= 1
    assert "is on cuda:0" in record.last_reason
    assert "is on cuda:0" in caplog.text


def test_dropout_draws_what_eager_torch_draws(x, torch_compile):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout()).cuda().train()
    compiled = torch_compile(model, "host")
    torch.manual_seed(1)
    ours = compiled(x)
    torch.manual_seed(1)
    torch.testing.assert_close(ours, model(x))


def test_explain_names_the_device(model, x):
    coverage = torchport.explain(model, (x,), target="host")
    assert coverage.ops_remain == coverage.ops_before
    assert {row.detail for row in coverage.stayed} == {"a tensor is on cuda:0"}
    assert {row.remedy for row in coverage.stayed} == {"move the model to the CPU"}


def test_analyze_counts_as_on_the_cpu(model, x):
    there = torchport.analyze(model, (x,))
    here = torchport.analyze(model.cpu(), (x.cpu(),))
    assert there.cost.flops == here.cost.flops


def test_a_weight_that_changes_is_noticed_while_the_gpu_computes(model, x):
    with torch.no_grad():
        compiled = torchport.compile(model, (x,), target="inductor")
        torch.testing.assert_close(compiled(x), model(x))
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
        model[2] = nn.Linear(8, 4).cuda()
        torch.testing.assert_close(compiled(x), model(x))


def test_auto_takes_the_gpu_and_tells_what_it_tried(model, x):
    with torch.no_grad():
        compiled = torchport.compile(model, (x,), target="auto")
        torch.testing.assert_close(compiled(x), model(x))
    rows = {row.engine: row for row in compiled.tries.rows}
    assert rows["inductor"].status == "ok"
    assert rows["openvino"].status == "refused"


def test_a_profile_names_the_gpu_s_kernels(model, x):
    profile = torchport.profile(model, (x,), target="inductor")
    assert profile.ops
    assert all(op.seconds > 0 and op.kernel for op in profile.ops)


def test_what_no_cuda_graph_can_hold_runs_kernel_by_kernel_and_leaves_torch_as_it_was(x):
    stream = torch.cuda.current_stream()
    runs = CudaGraph(lambda given: [given[0] * given[0].sum().item()])  # `item` waits for the GPU
    for _ in range(2):
        torch.testing.assert_close(runs([x])[0], x * x.sum())
    assert torch.cuda.current_stream() == stream
    torch.cuda.manual_seed(3)
    drawn = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.rand(4, device="cuda"), drawn)
    torch.testing.assert_close(CudaGraph(lambda given: [given[0] + 1])([x])[0], x + 1)


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8, affine=True), nn.Flatten(0, 1)])
def test_images_are_compiled_whatever_reads_them(norm):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU()).cuda().eval()
    images = torch.randn(2, 3, 9, 9, device="cuda")
    compiled = torchport.compile(model, (images,), target="inductor", options={"speed_trial": False})
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fresh_process_runs_a_package_on_the_gpu_without_the_compiler(dtype, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(392, 16), nn.LayerNorm(16))
    model, images = model.cuda().to(dtype).eval(), torch.randn(2, 3, 9, 9, device="cuda", dtype=dtype)
    with torch.no_grad():
        compiled = torchport.compile(model, (images,), target="inductor", options={"speed_trial": False})
        torchport.save(compiled, tmp_path / "model.pt2")
        torch.save((images, compiled(images)), tmp_path / "given.pt")
    code = (
        "import sys, torch, torchport; images, expected = torch.load(sys.argv[2]);"
        "actual = torchport.load(sys.argv[1])(images);"
        "assert torch.allclose(actual, expected, atol=1e-2, rtol=1e-2);"
        "print(sorted({'torch._inductor', 'torch._dynamo', 'sympy', 'triton'} & set(sys.modules)))"
    )
    assert run_fresh(code, str(tmp_path / "model.pt2"), str(tmp_path / "given.pt")) == "[]"


@pytest.mark.parametrize("norm", [nn.GroupNorm(4, 8), nn.Flatten(1)])
@pytest.mark.parametrize("what", ["inputs", "weights"])
def test_what_lies_channels_last_is_compiled(what, norm):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm).cuda().eval()
    images = torch.randn(2, 3, 9, 9, device="cuda")
    compiled = torchport.compile(model, (images,), target="inductor", options={"speed_trial": False})
    if what == "inputs":
        images = images.to(memory_format=torch.channels_last)
    else:
        model.to(memory_format=torch.channels_last)
    again = torchport.compile(model, (images,), target="inductor", options={"speed_trial": False})
    for ours in (compiled, again):
        torch.testing.assert_close(ours(images), model(images), rtol=1e-3, atol=1e-3)
        assert ours.coverage.ops_remain == 0


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_in_autocast_is_refused_or_has_eager_s_dtype(layer):
    model, x = layer(8, 4).cuda().eval(), torch.randn(5, 2, 8, device="cuda")
    compiled = torchport.compile(model, (x,), target="inductor", options={"speed_trial": False})
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        with pytest.raises(CaptureError, match=r"cuDNN computes .* in float16"):
            compiled(x)
        torch._dynamo.reset()
        by_torch = torch.compile(model, backend="torchport", options={"target": "inductor"})
        expected = model(x)[0]
        assert by_torch(x)[0].dtype is expected.dtype is torch.float16
        torch.testing.assert_close(by_torch(x)[0], expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-3, atol=1e-3)


class Positions(nn.Module):
    """Counts the tokens that are not padding, and looks up their numbers in a table just large enough."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, ids):
        present = ids.ne(1).int()
        return torch.relu(self.table((present.cumsum(1) * present + 1).long()))


def test_indices_that_fit_the_inputs_alone_do_not_lose_the_gpu(tmp_path):
    model, ids = Positions().cuda().eval(), torch.tensor([[5] * 8 + [1] * 8], device="cuda")
    compiled = torchport.compile(model, (ids,), target="inductor", options={"speed_trial": False})
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(compiled(ids), model(ids))
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(ids), model(ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["causal", "encoder-decoder"])
def test_it_generates_on_the_gpu(kind, dtype):
    models = pytest.importorskip("generation.models")
    model = models.tiny_llama() if kind == "causal" else models.small_encoder_decoder("t5")
    model = model.to("cuda", dtype)
    ids = torch.randint(3, 90, (2, 7), device="cuda")
    asked = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 8,
        "min_new_tokens": 8,
        "do_sample": False,
    }
    options = {"speed_trial": False}
    compiled = torchport.compile(model, (ids[:1],), target="inductor", max_length=32, options=options)
    expected, given = model.generate(ids, **asked), compiled.generate(ids, **asked)
    assert given.device == expected.device
    assert given.shape == expected.shape
    if dtype is torch.float32:
        assert torch.equal(given, expected)
    assert compiled.fallbacks.fallbacks == 0


USES_CUDA = """
import torch
from torch import nn

class OnCuda(nn.Module):
    def forward(self, x):
        return torch.relu(x.cuda() * torch.ones(4, device="cuda")).cpu()

def load():
    return OnCuda(), (torch.rand(2, 4),)
"""


def test_a_survey_s_processes_can_use_cuda(tmp_path):
    (tmp_path / "net.py").write_text(USES_CUDA)
    names = [f"{tmp_path / 'net.py'}::load", "hf-small:gpt2"]
    settings = torchport.SurveySettings(weights=False)
    rows = torchport.run_survey(names, output=tmp_path / "out", settings=settings)
    assert [(row.status, row.error) for row in rows] == [("ok", ""), ("ok", "")]
