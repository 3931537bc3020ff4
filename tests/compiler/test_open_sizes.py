"""One program for all sizes: how many are built, which sizes it takes, and what happens with others."""

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import torchport
from compiler.devices import FAULTY
from torchport.compiler import island_trial
from torchport.errors import RuntimeRefusal
from torchport.targets.host import HostTarget
from torchport.targets.openvino import OpenVinoTarget

LENGTH = Dim("length", min=1, max=40)
ROWS = Dim("rows", min=1, max=6)
# Tests what the compiler does for all targets; tests/targets/openvino/test_open_sizes.py is for OpenVINO.
MOSTLY_HOST = pytest.mark.parametrize(
    "target", ["host", pytest.param("openvino", marks=pytest.mark.conformance)]
)


class Encoder(nn.Module):
    """Embeds tokens and their positions, and attends with a mask, like BERT."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(30, 16), nn.Embedding(40, 16)
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, ids, mask):
        rows, length = ids.shape
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(length)))
        query, key, value = self.qkv(x).view(rows, length, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        allowed = mask[:, None, None, :].bool().expand(rows, 1, length, length)
        mixed = F.scaled_dot_product_attention(query, key, value, allowed)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, 16))
        return x, x[:, 0]


class Decoder(nn.Module):
    """Rotates queries and keys by their positions, and attends causally, like Llama."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30, 16)
        self.query, self.key = nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.norm, self.head = nn.RMSNorm(16, eps=1e-6), nn.Linear(16, 30, bias=False)
        self.register_buffer("frequencies", 10000 ** -torch.arange(0, 2, dtype=torch.float32))

    def rotate(self, x, cosine, sine):
        first, second = x.chunk(2, -1)
        return x * cosine + torch.cat([-second, first], -1) * sine

    def forward(self, ids):
        rows, length = ids.shape
        x = self.norm(self.tokens(ids))
        angles = torch.outer(torch.arange(length).float(), self.frequencies)
        cosine, sine = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        query = self.rotate(self.query(x).view(rows, length, 4, 4).transpose(1, 2), cosine, sine)
        key = self.rotate(self.key(x).view(rows, length, 2, 4).transpose(1, 2), cosine, sine)
        key = key[:, :, None].expand(rows, 2, 2, length, 4).reshape(rows, 4, length, 4)
        mixed = F.scaled_dot_product_attention(query, key, key, is_causal=True)
        return self.head(mixed.transpose(1, 2).reshape(rows, length, 16))


class Pictures(nn.Module):
    """Convolves, normalizes, pools and classifies, like ResNet."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.more, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.adaptive_avg_pool2d(x + self.more(x), 1)
        return self.head(x.flatten(1))


def ids(rows, length):
    return torch.randint(0, 30, (rows, length))


def mask(rows, length):
    kept = torch.ones(rows, length, dtype=torch.long)
    kept[:, length // 2 + 1 :] = 0
    return kept


def assert_same(model, compiled, *args):
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), model(*args), atol=2e-5, rtol=2e-5)


@pytest.fixture
def builds(monkeypatch):
    """Counts the islands that are built."""
    counted = []
    for kind in (HostTarget, OpenVinoTarget):
        monkeypatch.setattr(kind, "build", _counting(kind.build, counted))
    return counted


def _counting(build, counted):
    def count(self, island, options):
        counted.append(island.name)
        return build(self, island, options)

    return count


def test_twenty_lengths_of_an_encoder_are_one_build(target, builds):
    model = Encoder().eval()
    shapes = ({0: ROWS, 1: LENGTH}, {0: ROWS, 1: LENGTH})
    compiled = torchport.compile(model, (ids(2, 7), mask(2, 7)), dynamic_shapes=shapes, target=target)
    assert [str(spec) for spec in compiled.record.inputs.values()] == ["int64[-1, -1]"] * 2
    count = len(builds)
    assert count == len(compiled.coverage.islands)
    for length in range(2, 42, 2):
        rows = length % 5 + 2
        assert_same(model, compiled, ids(rows, length), mask(rows, length))
    assert (len(builds), len(compiled.programs), compiled.fallbacks.fallbacks) == (count, 1, 0)


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_twenty_lengths_of_a_decoder_are_one_build(target, builds):
    model = Decoder().eval()
    compiled = torchport.compile(model, (ids(2, 7),), dynamic_shapes=({1: LENGTH},), target=target)
    count = len(builds)
    for length in range(1, 41, 2):
        assert_same(model, compiled, ids(2, length))
    assert (len(builds), len(compiled.programs), compiled.fallbacks.fallbacks) == (count, 1, 0)
    if target == "openvino":
        assert compiled.coverage.complete


def test_batches_of_pictures_are_one_build(target, builds):
    model = Pictures().eval()
    compiled = torchport.compile(
        model, (torch.randn(3, 3, 16, 16),), dynamic_shapes=({0: ROWS},), target=target
    )
    for rows in range(1, 7):
        assert_same(model, compiled, torch.randn(rows, 3, 16, 16))
    assert (len(builds), len(compiled.programs), compiled.fallbacks.fallbacks) == (1, 1, 0)


@MOSTLY_HOST
def test_a_size_outside_the_range_is_refused(target):
    compiled = torchport.compile(Decoder().eval(), (ids(2, 7),), dynamic_shapes=({1: LENGTH},), target=target)
    with pytest.raises(RuntimeRefusal, match=r"Decoder: dimension 1 of .* is 41, outside 1 … 40: widen"):
        compiled(ids(2, 41))
    with pytest.raises(RuntimeRefusal, match=r"dimension 0 of .* is 3, but must be 2"):
        compiled(ids(3, 7))


def test_a_model_that_asks_for_a_size_of_1_gets_a_program_for_it(target):
    """Torch silently captures it as if no size were 1."""

    def model(x):
        return x * 100 if x.shape[0] == 1 else x + 1

    compiled = torchport.compile(model, (torch.ones(3, 2),), dynamic_shapes=({0: ROWS},), target=target)
    for rows in (2, 1, 6, 1):
        assert_same(model, compiled, torch.ones(rows, 2))
    assert len(compiled.programs) == 2


@MOSTLY_HOST
def test_sizes_that_are_results(target):
    def model(x):
        return x * 2, {"rows": 2 * x.shape[0] + 1}, x.shape

    compiled = torchport.compile(model, (torch.ones(3, 2),), dynamic_shapes=({0: ROWS},), target=target)
    for rows in (3, 2, 6, 1):
        doubled, numbers, shape = compiled(torch.ones(rows, 2))
        assert doubled.shape == (rows, 2)
        assert numbers == {"rows": 2 * rows + 1}
        assert shape == (rows, 2)
        assert all(type(size) is int for size in shape)


def test_no_elements_at_all_are_a_program_of_their_own(target):
    compiled = torchport.compile(
        lambda x: x * 2, (torch.ones(3, 2),), dynamic_shapes=({0: Dim("rows", min=0, max=6)},), target=target
    )
    assert compiled(torch.ones(0, 2)).shape == (0, 2)
    assert_same(lambda x: x * 2, compiled, torch.ones(5, 2))
    assert len(compiled.programs) == 2


def test_an_input_that_lies_otherwise_in_memory_is_a_program_of_its_own(target):
    compiled = torchport.compile(
        lambda x: x * 2, (torch.ones(3, 2),), dynamic_shapes=({0: ROWS},), target=target
    )
    x = torch.arange(10.0).reshape(2, 5).t()
    assert compiled(x).stride() == (x * 2).stride()
    assert torch.equal(compiled(x), x * 2)
    assert len(compiled.programs) == 2


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_a_changed_weight_is_built_anew_for_all_sizes(target, builds):
    model = Decoder().eval()
    compiled = torchport.compile(model, (ids(2, 7),), dynamic_shapes=({1: LENGTH},), target=target)
    count = len(builds)
    with torch.no_grad():
        model.head.weight.mul_(3)
    for length in (9, 4, 30):
        assert_same(model, compiled, ids(2, length))
    assert count < len(builds) <= 2 * count  # an island without that weight is a cache hit
    assert len(compiled.programs) == 1


def test_a_target_of_fixed_sizes_compiles_for_each(monkeypatch, builds, caplog):
    monkeypatch.setattr(HostTarget, "takes_open_sizes", lambda self, options: False)
    model = Decoder().eval()
    compiled = torchport.compile(model, (ids(2, 7),), dynamic_shapes=({1: LENGTH},), target="host")
    for length in (7, 9, 4):
        assert_same(model, compiled, ids(2, length))
    assert len(compiled.programs) == 3
    assert caplog.text.count("compiled separately: the target host only builds for fixed sizes") == 1


@MOSTLY_HOST
def test_sizes_that_vary_too_independently_are_compiled_for_one_by_one(target, caplog):
    def model(a, b, c, d):
        return a * 2, b + 1, c - 1, d * 3

    args = [torch.ones(size) for size in (2, 3, 4, 5)]
    shapes = tuple({0: Dim(name, max=9)} for name in "abcd")
    compiled = torchport.compile(model, args, dynamic_shapes=shapes, target=target)
    assert "each size is compiled separately: more than 3 sizes vary independently" in caplog.text
    assert_same(model, compiled, *[torch.ones(size) for size in (3, 4, 5, 6)])
    assert len(compiled.programs) == 2


def test_why_there_is_a_program_for_each_size_is_logged_once(caplog):
    cache = torch.rand(2, 3, 16, 4)
    model = lambda past: past.sum(-1) * 2  # noqa: E731
    compiled = torchport.compile(
        model, (cache[:, :, :3].contiguous(),), dynamic_shapes=({2: LENGTH},), target="host"
    )
    for length in (4, 5, 6):
        torch.testing.assert_close(compiled(cache[:, :, :length]), model(cache[:, :, :length]))
    assert len(compiled.programs) == 4
    assert (
        caplog.text.count("each other size of them, are compiled separately: [0][0] is not contiguous") == 1
    )


def test_one_tensor_given_twice_is_explained():
    compiled = torchport.compile(
        torch.add,
        (torch.ones(2), torch.ones(2)),
        dynamic_shapes=({0: LENGTH}, {0: LENGTH}),
        target="host",
    )
    x = torch.ones(3)
    assert compiled(x, x.clone()).tolist() == [2, 2, 2]
    with pytest.raises(
        RuntimeRefusal, match="1 tensors are given, 2 expected: if one tensor is given twice, pass a copy"
    ):
        compiled(x, x)


@MOSTLY_HOST
def test_islands_are_tried_at_the_smallest_the_largest_and_a_size_between(monkeypatch, target):
    tried = []
    run = island_trial.Reference.run

    def remember(self, *leaves):
        tried.append(leaves[0].shape[1])
        return run(self, *leaves)

    monkeypatch.setattr(island_trial.Reference, "run", remember)
    torchport.compile(Decoder().eval(), (ids(2, 7),), dynamic_shapes=({1: LENGTH},), target=target)
    assert tried == [7, 1, 40]
    tried.clear()
    torchport.compile(Decoder().eval(), (ids(2, 40),), dynamic_shapes=({1: LENGTH},), target=target)
    assert tried == [40, 1, 20]


class Picks(nn.Module):
    def forward(self, x, index):
        return (x * 2).index_select(1, index).relu()


def test_sizes_at_which_a_mask_hides_everything_do_not_decide():
    """The mask of the example hides the first keys, so for fewer keys it would hide all."""

    def attend(query, keys, mask):
        return F.scaled_dot_product_attention(query, keys, keys, mask)

    size = torch.export.Dim("keys", min=2, max=64)
    query, keys = torch.randn(1, 2, 4, 16), torch.randn(1, 2, 9, 16)
    mask = torch.arange(9).expand(1, 1, 4, 9) >= 5
    shapes = (None, {2: size}, {3: size})
    compiled = torchport.compile(attend, (query, keys, mask), dynamic_shapes=shapes, options={"cache": False})
    assert compiled.coverage.complete
    for count, hidden, fallbacks in ((9, 5, 0), (30, 1, 0), (2, 1, 0), (2, 2, 1)):
        keys = torch.randn(1, 2, count, 16)
        mask = torch.arange(count).expand(1, 1, 4, count) >= hidden
        torch.testing.assert_close(compiled(query, keys, mask), attend(query, keys, mask))
        assert compiled.fallbacks.fallbacks == fallbacks


def test_sizes_that_eager_torch_cannot_take_with_these_values_are_not_tried(target):
    model, index = Picks(), torch.tensor([3, 0])
    shapes = ({1: Dim("length", max=40)}, None)
    compiled = torchport.compile(model, (torch.randn(2, 7), index), dynamic_shapes=shapes, target=target)
    for length in (4, 7, 40):
        assert_same(model, compiled, torch.randn(2, length), index)
    assert_same(model, compiled, torch.randn(2, 1), torch.tensor([0, 0]))
    assert len(compiled.programs) == 1
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.randn(2, 3), index)


class WrongIfLarge(HostTarget):
    """Gets one op wrong where it has more than 16 elements."""

    name = "wrong_if_large"

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)
        if FAULTY.encode() not in artifact.payload.tobytes():
            return run
        return lambda arguments: [x + (arguments[0].numel() > 16) for x in run(arguments)]


def test_an_op_that_is_wrong_at_large_sizes_only_stays(monkeypatch):
    from torchport.targets import registry

    known = {**registry._all(), "wrong_if_large": WrongIfLarge()}
    monkeypatch.setattr(registry, "_all", lambda: known)
    compiled = torchport.compile(
        lambda x: torch.tanh(x * 2) + 1,
        (torch.randn(2, 3),),
        dynamic_shapes=({1: LENGTH},),
        target="wrong_if_large",
    )
    (stayed,) = compiled.coverage.stayed
    assert (stayed.op, stayed.reason) == (FAULTY, "inaccurate")
    x = torch.randn(2, 30)
    torch.testing.assert_close(compiled(x), torch.tanh(x * 2) + 1)


@MOSTLY_HOST
def test_a_built_island_is_found_again_by_its_range_of_sizes(target, builds):
    model = Pictures().eval()

    def compile(most):
        shapes = ({0: Dim("rows", min=1, max=most)},)
        return torchport.compile(model, (torch.randn(3, 3, 16, 16),), dynamic_shapes=shapes, target=target)

    compile(6)
    assert len(builds) == 1
    compile(6)
    assert len(builds) == 1
    compile(5)
    assert len(builds) == 2


def test_sizes_that_depend_on_each_other(target):
    def model(x, y):
        return torch.cat([x, x], 0) + y, y.view(x.shape[0], 2, -1).sum(1)

    short = Dim("short", min=1, max=9)
    compiled = torchport.compile(
        model,
        (torch.randn(3, 4), torch.randn(6, 4)),
        dynamic_shapes=({0: short}, {0: 2 * short}),
        target=target,
    )
    for rows in (1, 2, 9):
        assert_same(model, compiled, torch.randn(rows, 4), torch.randn(2 * rows, 4))
    assert len(compiled.programs) <= 2
    with pytest.raises(RuntimeRefusal, match="is 5, but must be 4"):
        compiled(torch.randn(2, 4), torch.randn(5, 4))


@MOSTLY_HOST
def test_what_stays_on_the_host_gets_its_sizes_too(target):
    """Islands before and after a host op get the sizes of the inputs."""

    def model(x):
        rows = x.shape[0]
        summed = (x * 2 + 1).view(rows, 2, 2).cumsum(0)
        return summed.view(rows * 2, 2).expand(3, rows * 2, 2) * 1.5

    compiled = torchport.compile(
        model,
        (torch.rand(3, 4),),
        dynamic_shapes=({0: ROWS},),
        target=target,
        options={"keep_ops": ["aten.cumsum.default"]},
    )
    assert [row.op for row in compiled.coverage.stayed] == ["aten.cumsum.default"]
    assert len(compiled.coverage.islands) == 2
    for rows in (2, 4, 6):
        assert_same(model, compiled, torch.rand(rows, 4))
    assert len(compiled.programs) == 1


@MOSTLY_HOST
def test_sizes_that_depend_on_data_are_right_whatever_is_built(target):
    def model(x):
        rows = x.shape[0]
        picked = torch.nonzero((x * 2 + 1).view(rows, 2, 2)[:, 0, 0] > 1.5)[:, 0].sum()
        return (x + picked).view(rows, 2, 2) * 1.5

    compiled = torchport.compile(model, (torch.rand(3, 4),), dynamic_shapes=({0: ROWS},), target=target)
    for rows in (2, 4, 6):
        assert_same(model, compiled, torch.rand(rows, 4))


@pytest.mark.parametrize(
    "model",
    [
        lambda x: ((y := x * 2).view(-1), y[0]),
        lambda x: ((y := x * 2).reshape(-1), y),
        lambda x: ((y := x * 2), y[:, 0]),
    ],
    ids=["two views", "reshaped", "a column"],
)
@pytest.mark.parametrize("target", ["host", "openvino"])
def test_results_that_share_memory_share_it_at_every_size(model, target):
    dims = {0: torch.export.Dim("rows", min=2, max=9)}
    compiled = torchport.compile(model, (torch.ones(3, 2),), target=target, dynamic_shapes=(dims,))
    for rows in (3, 2, 7):
        ours, theirs = compiled(torch.ones(rows, 2)), model(torch.ones(rows, 2))
        for results in (ours, theirs):
            results[0].zero_()
        torch.testing.assert_close(ours[1], theirs[1])
        assert torch.equal(theirs[1], torch.zeros_like(theirs[1]))
