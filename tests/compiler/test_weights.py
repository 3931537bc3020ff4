"""The guard detects every change of a weight or of what the modules hold."""

import ast
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import torchport
from torchport import capture, targets
from torchport.capture import ModuleState
from torchport.compiler.normalise import Weight, normalise
from torchport.compiler.weights import Changed, WeightGuard, check_once, frozen_weights

SOURCE = Path(torchport.__file__).parent


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.head = nn.Linear(3, 3, bias=False)
        self.register_buffer("scale", torch.ones(3))
        self.plain = torch.ones(2)


def guarded():
    model = Net()
    tensors = [*model.parameters(), *model.buffers(), model.plain]
    return model, WeightGuard([Weight("", tensor) for tensor in tensors], ModuleState(model))


def swap_first_layers(model):
    model.body[0], model.head = model.head, model.body[0]


def optimizer_step(model):
    model.head.weight.grad = torch.ones(3, 3)
    torch.optim.Adam([model.head.weight]).step()


def in_another_thread(model):
    thread = threading.Thread(target=lambda: model.head.weight.detach().mul_(2))
    thread.start()
    thread.join()


def as_strided(tensor):
    return tensor.data.as_strided((3, 3), (1, 3))


CHANGES = {
    "in another thread": in_another_thread,
    "through a view": lambda m: m.head.weight.detach()[1:, :1].zero_(),
    "data of another shape": lambda m: setattr(m.head.weight, "data", m.head.weight.data.view(9)),
    "data of other strides": lambda m: setattr(m.head.weight, "data", as_strided(m.head.weight)),
    "fewer rows of data": lambda m: setattr(m.head.weight, "data", m.head.weight.data[:2]),
    "data from another place": lambda m: setattr(m.head.weight, "data", torch.ones(4, 3)[1:]),
    "one more dimension": lambda m: setattr(m.head.weight, "data", m.head.weight.data.view(3, 3, 1)),
    "memory given back": lambda m: m.head.weight.untyped_storage().resize_(0),
    "memory moved": lambda m: m.head.weight.untyped_storage().resize_(1 << 22),
    "resized": lambda m: m.scale.resize_(1 << 10),
    "swapped with a sparse one": lambda m: torch.utils.swap_tensors(m.plain, torch.eye(2).to_sparse()),
    "swapped with one of another device": lambda m: torch.utils.swap_tensors(
        m.plain, torch.ones(2, device="meta")
    ),
    "in place": lambda m: m.head.weight.mul_(2),
    "an element": lambda m: m.head.weight[0, 0].add_(1),
    "a view's base": lambda m: m.head.weight.view(-1)[:1].zero_(),
    "through data": lambda m: m.head.weight.data.mul_(2),
    "data replaced": lambda m: setattr(m.head.weight, "data", torch.ones(3, 3)),
    "data transposed": lambda m: setattr(m.head.weight, "data", m.head.weight.data.t()),
    "tensors swapped": lambda m: torch.utils.swap_tensors(m.head.weight, nn.Parameter(torch.ones(3, 3))),
    "storage replaced": lambda m: m.head.weight.set_(torch.ones(3, 3)),
    "parameter replaced": lambda m: setattr(m.head, "weight", nn.Parameter(m.head.weight.clone())),
    "parameter removed": lambda m: setattr(m.head, "weight", None),
    "bias added": lambda m: setattr(m.head, "bias", nn.Parameter(torch.ones(3))),
    "buffer replaced": lambda m: setattr(m, "scale", torch.ones(3)),
    "attribute replaced": lambda m: setattr(m, "plain", torch.ones(2)),
    "module replaced": lambda m: setattr(m, "head", nn.Linear(3, 3)),
    "module without weights replaced": lambda m: m.body.__setitem__(1, nn.GELU()),
    "modules swapped": swap_first_layers,
    "mode": lambda m: m.eval(),
    "mode of one module": lambda m: m.body[1].eval(),
    "numpy": lambda m: m.head.weight.detach().numpy().fill(7),
    "load_state_dict": lambda m: m.load_state_dict(Net().state_dict()),
    "load_state_dict assigning": lambda m: m.load_state_dict(Net().state_dict(), assign=True),
    "optimizer": optimizer_step,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(change):
    model, guard = guarded()
    assert guard.unchanged()
    with torch.no_grad():
        change(model)
    assert not guard.unchanged()


def test_reading_is_no_change():
    model, guard = guarded()
    with torch.no_grad():
        model.head(torch.ones(1, 3))
        model.state_dict()
        model.head.weight.data_ptr()
    model.head.weight.requires_grad_(False)
    model.zero_grad()
    assert guard.unchanged()


def test_pruning_through_data_is_noticed():
    weight = torch.randn(128, 64, generator=torch.Generator().manual_seed(0))
    for share in (0.3, 0.5, 0.9):
        pruned = weight.clone()
        guard = WeightGuard([Weight("", pruned)])
        pruned.data[pruned.abs() < pruned.abs().flatten().quantile(share)] = 0
        assert not guard.unchanged()


@pytest.mark.xfail(strict=True, reason="writes through .data are only detected at sampled elements")
def test_a_write_to_one_row_through_data_is_noticed():
    model, guard = guarded()
    model.head.weight.data[1].fill_(9)
    assert not guard.unchanged()


DTYPES = (
    torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.int64,
    torch.complex64, torch.complex128,
)  # fmt: skip
LAYOUTS = {
    "scalar": torch.ones(()),
    "one element": torch.ones(1, 1, 1),
    "transposed": torch.ones(4, 6).t(),
    "with holes": torch.ones(6)[::2],
    "expanded": torch.ones(3, 1).expand(3, 5000),
    "a part": torch.ones(100, 300)[20:90, 200:],
    "channels last": torch.ones(2, 3, 40, 40).to(memory_format=torch.channels_last),
    "many dimensions": torch.ones(4, 4, 4, 4, 4, 4, 4),
    "conjugated": torch.ones(3, dtype=torch.complex64).conj(),
    "large": torch.ones(300, 300),
}


@pytest.mark.parametrize(
    "tensor",
    [*[torch.ones(2, dtype=dtype) for dtype in DTYPES], *LAYOUTS.values()],
    ids=[*map(str, DTYPES), *LAYOUTS],
)
def test_any_dtype_and_layout(tensor):
    guard = WeightGuard([Weight("", tensor)])
    assert guard.unchanged()
    tensor.untyped_storage().fill_(0)  # like `tensor.data.zero_()`, which not all of these support
    assert not guard.unchanged()


@pytest.mark.parametrize("part", ["rows", "columns"])
def test_a_write_to_every_second_row_or_column_through_data_is_noticed(part):
    weight = torch.ones(128, 64)
    guard = WeightGuard([Weight("", weight)])
    (weight.data if part == "rows" else weight.data.t())[::2].zero_()
    assert not guard.unchanged()


def test_memory_beside_a_weight_may_be_written_through_data():
    whole = torch.ones(100, 300)
    guard = WeightGuard([Weight("", whole[20:90, 100:200])])
    whole.data[:20].zero_()
    whole.data[90:].zero_()
    whole.data[:, :100].zero_()
    whole.data[:, 200:].zero_()
    # The part shares the whole's version counter, which none of these writes increments.
    assert guard.unchanged()


def test_guarding_leaves_the_memory_as_it_was():
    tensor = torch.ones(10)
    guard = WeightGuard([Weight("", tensor)])
    tensor.resize_(1 << 12)  # memory shared with numpy would refuse this
    assert not guard.unchanged()
    tensor.untyped_storage().resize_(0)
    assert not guard.unchanged()


@pytest.mark.parametrize("inner", ["a", "b"])
def test_a_write_inside_a_wrapper_is_noticed(inner):
    wrapper = TwoTensor(torch.ones(3, 3), torch.ones(3, 3))
    guard = WeightGuard([Weight("", wrapper)])
    assert guard.unchanged()
    getattr(wrapper, inner).data.mul_(2)
    assert not guard.unchanged()


@pytest.mark.parametrize("inner", ["a", "b"])
def test_another_tensor_inside_a_wrapper_is_noticed(inner):
    wrapper = TwoTensor(torch.ones(3, 3), torch.ones(3, 3))
    guard = WeightGuard([Weight("", wrapper)])
    setattr(wrapper, inner, torch.ones(3, 3))
    assert not guard.unchanged()


SPARSE = {
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "csc": lambda: torch.eye(3).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
}


@pytest.mark.filterwarnings("ignore:Sparse C:UserWarning")
@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
def test_a_write_to_a_sparse_weight_is_noticed(make):
    counted, uncounted = make(), make()
    guard = WeightGuard([Weight("", counted), Weight("", uncounted)])
    others = WeightGuard([Weight("", counted)])
    assert guard.unchanged()
    uncounted.values().data.mul_(2)
    assert not guard.unchanged()
    assert others.unchanged()
    counted.mul_(2)
    assert not others.unchanged()


def test_empty_and_inference_tensors_are_no_obstacle():
    with torch.inference_mode():
        frozen = torch.ones(3)
    guard = WeightGuard([Weight("", torch.empty(0)), Weight("", frozen)])
    assert guard.unchanged()
    with torch.inference_mode():
        frozen.mul_(2)
    assert not guard.unchanged()


def test_memory_that_was_given_back_is_not_read():
    tensor = torch.ones(1000)
    guard = WeightGuard([Weight("", tensor)])
    tensor.data = torch.zeros(1000)
    assert not guard.unchanged()


def test_memory_that_was_freed_is_not_read():
    tensor = torch.ones(1 << 22)  # so large that its memory is returned to the system at once
    guard = WeightGuard([Weight("", tensor)])
    assert guard.unchanged()
    tensor.untyped_storage().resize_(0)
    assert not guard.unchanged()


def test_weights_that_are_read_and_not_written_are_guarded():
    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
    names = {}
    for mode in (True, False):
        captured = capture.export(model.train(mode), (torch.rand(2, 3, 4, 4),))
        names[mode] = {weight.name for weight in frozen_weights(normalise(captured, targets.find("host")))}
    assert names[True] == {"0.weight", "1.weight", "1.bias"}
    assert names[False] == {*names[True], "1.running_mean", "1.running_var"}  # and num_batches_tracked is not


def test_a_weight_that_is_folded_away_is_guarded():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            return x * torch.exp(self.scale)

    model = Scaled()
    compiled = torchport.compile(model, (torch.ones(3),), target="host")
    model.scale.zero_()
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))


def test_no_object_is_read_by_its_address():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in {"from_address", "stride_tricks", "string_at", "py_object"}, path


def test_in_a_loop_it_checks_everything_once_and_then_only_version_counters():
    model, guard = guarded()
    with check_once():
        guard.check()
        with torch.no_grad():
            model.head.weight.mul_(2)
        with pytest.raises(Changed):
            guard.check()
    model, guard = guarded()
    with check_once():
        model.head.weight.data.mul_(2)
        with pytest.raises(Changed):
            guard.check()
    model, guard = guarded()
    with check_once():
        guard.check()
        model.head.weight.data.mul_(2)
        guard.check()
    with pytest.raises(Changed):  # the loop is over
        guard.check()


def test_a_loop_of_one_thread_is_not_anothers():
    model, guard = guarded()
    found = []

    def check():
        try:
            guard.check()
        except Changed:
            found.append("changed")

    with check_once():
        guard.check()
        model.head.weight.data.mul_(2)
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
    assert found == ["changed"]
