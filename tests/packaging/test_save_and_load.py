"""`torchport.save` and `torchport.load`: what comes back is what was compiled."""

import dataclasses
import signal
import subprocess
import sys
import zipfile
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport import zoo
from torchport.errors import PackageError, RuntimeRefusal
from torchport.packaging.load_model import read_package
from torchport.packaging.structure_json import decode_structure

X = torch.tensor([[1.0, -2.0, 3.0, -4.0]] * 3)


class Net(nn.Module):
    """Takes a keyword, counts its calls, and returns a nested structure that contains an input."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *, scale):
        self.calls += 1
        return {"y": torch.relu(self.inner(x)) * scale, "rest": (x, [self.calls * 2], 3, None)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pt2"


def saved(path, model, *args, target="host", options=None, **kwargs):
    compiled = torchport.compile(model, args, kwargs, target=target, options=options)
    torchport.save(compiled, path)
    return compiled


def without_islands(record):
    """Drop the islands: in a file, they also hold the device's compiled form, and so have other digests."""
    return dataclasses.replace(record, islands=())


@pytest.mark.parametrize("keep", [[], ["aten.relu"], ["aten.relu", "aten.addmm", "aten.linear", "aten.mul"]])
def test_a_loaded_model_gives_exactly_the_compiled_models_results(path, target, keep):
    model, scale = Net().eval(), torch.rand(4)
    compiled = saved(path, model, X, target=target, options={"keep_ops": keep}, scale=scale)
    loaded = torchport.load(path)
    expected, actual = compiled(X, scale=scale), loaded(X, scale=scale)
    assert torch.equal(actual["y"], expected["y"])
    assert actual["rest"][0] is X
    assert actual["rest"][1][0].item() == 2.0
    assert actual["rest"][2:] == (3, None)
    assert loaded(X, scale=scale)["rest"][1][0].item() == 4.0  # its own buffer, incremented again
    assert without_islands(loaded.record) == without_islands(compiled.record)
    assert loaded.coverage.ops_remain == compiled.coverage.ops_remain


def test_torch_export_load_opens_it_too(path, target):
    model, scale = Net().eval(), torch.rand(4)
    compiled = saved(path, model, X, target=target, options={"keep_ops": ["aten.relu"]}, scale=scale)
    program = torch.export.load(path)
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert torch.ops.torchport.island.default in calls
    actual, expected = program.module()(X, scale=scale), compiled(X, scale=scale)
    assert torch.equal(actual["y"], expected["y"])
    assert actual["rest"][1][0].item() == 2.0


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_a_fresh_process_loads_it_without_the_model_s_code(path, target):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    compiled = saved(path, model, X, target=target)
    code = (
        "import sys, torch, torchport; model = torchport.load(sys.argv[1]);"
        "print(model(torch.tensor([[1.0, -2.0, 3.0, -4.0]] * 3)).tolist());"
        "print(sorted(name for name in sys.modules if name in sys.argv[2:]))"
    )
    stages = [f"torchport.{stage}" for stage in ("analysis", "capture", "compiler", "generation")]
    compilers = ("torch._dynamo", "torch._inductor", "sympy")
    result, modules = run_fresh(code, str(path), *stages, *compilers).splitlines()
    assert result == str(compiled(X).tolist())
    assert modules == "[]"


@pytest.mark.usefixtures("forked_python")
def test_a_fresh_process_opens_it_with_torch_alone(path, target):
    compiled = saved(path, nn.Sequential(nn.Linear(4, 8), nn.Tanh()).eval(), X, target=target)
    code = (
        "import sys, torch; model = torch.export.load(sys.argv[1]).module();"
        "print(model(torch.tensor([[1.0, -2.0, 3.0, -4.0]] * 3)).tolist())"
    )
    assert run_fresh(code, str(path)) == str(compiled(X).tolist())


class Twice(nn.Module):
    """Reads one large weight in two islands, with an op between them that stays on the host."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1 << 15))

    def forward(self, x):
        return torch.erfinv((x * self.scale).tanh()) * self.scale


@pytest.mark.usefixtures("forked_python")
def test_torch_alone_opens_islands_that_share_a_weight(path):
    model, x = Twice().eval(), torch.rand(3, 1 << 15)
    compiled = torchport.compile(model, (x,), target="host", options={"keep_ops": ["aten.erfinv"]})
    assert len(compiled.coverage.islands) == 2
    expected = compiled(x)
    compiled(x[:2])  # a second program, whose payloads may refer to the first one's
    torchport.save(compiled, path)
    size = path.stat().st_size
    assert torch.equal(torchport.load(path)(x), expected)
    torch.save((x, expected), path.with_suffix(".pt"))
    code = (
        "import sys, torch; x, expected = torch.load(sys.argv[2]);"
        "print(torch.equal(torch.export.load(sys.argv[1]).module()(x), expected))"
    )
    assert run_fresh(code, str(path), str(path.with_suffix(".pt"))) == "True"
    assert size < 2.5 * model.scale.nbytes  # twice in the first program, not in the second


def test_programs_for_all_compiled_shapes_are_saved(path):
    compiled = torchport.compile(nn.Linear(4, 2).eval(), (X,), target="host")
    other = torch.rand(5, 4)
    expected = compiled(other)
    torchport.save(compiled, path)
    loaded = torchport.load(path)
    assert torch.equal(loaded(other), expected)
    assert torch.equal(loaded(X), compiled(X))
    with pytest.raises(RuntimeRefusal, match=r"no program for the inputs \(float32\[7, 4\]\)"):
        loaded(torch.rand(7, 4))


def test_programs_share_the_buffers_that_they_mutate(path):
    model, scale = Net().eval(), torch.rand(4)
    compiled = torchport.compile(model, (X,), {"scale": scale}, target="host")
    compiled(X[:2], scale=scale)
    torchport.save(compiled, path)
    loaded = torchport.load(path)
    counts = [loaded(x, scale=scale)["rest"][1][0].item() for x in (X, X[:2], X)]
    assert counts == [4.0, 6.0, 8.0]  # one call was made before saving


@dataclasses.dataclass
class Scores:
    """A user's class."""

    logits: torch.Tensor
    names: tuple


def test_a_users_class_must_be_passed(path):
    saved(path, lambda x: Scores(x * 2, ("a", "b")), X)
    with pytest.raises(PackageError, match=r"class test_save_and_load\.Scores.*classes=\["):
        torchport.load(path)
    result = torchport.load(path, classes=[Scores])(X)
    assert isinstance(result, Scores)
    assert (result.names, result.logits.tolist()) == (("a", "b"), (X * 2).tolist())
    [logits] = torch.export.load(path).module()(X)  # torch knows no such class
    assert torch.equal(logits, X * 2)


def test_a_dict_of_another_class_keeps_it(path):
    saved(path, lambda x: OrderedDict(b=x + 1, a=x), X)
    result = torchport.load(path)(X)
    assert type(result) is OrderedDict
    assert list(result) == ["b", "a"]


def test_a_model_output_keeps_its_class(path):
    from transformers.modeling_outputs import BaseModelOutput

    saved(path, lambda x: BaseModelOutput(last_hidden_state=x + 1), X)
    result = torchport.load(path)(X)
    assert type(result) is BaseModelOutput
    assert torch.equal(result.last_hidden_state, X + 1)
    exported = torch.export.load(path).module()(X)
    assert {key: value.tolist() for key, value in exported.items()} == {"last_hidden_state": (X + 1).tolist()}


@pytest.mark.parametrize("architecture", ["gpt2", "t5"])
def test_a_language_model_s_cache_keeps_its_class(path, architecture):
    small = zoo.load(f"hf-small:{architecture}")
    options = {"speed_trial": False}
    compiled = torchport.compile(small.module, small.args, small.kwargs, target="host", options=options)
    torchport.save(compiled, path)
    with torch.no_grad():
        expected = small.module(*small.args, **small.kwargs)
    result = torchport.load(path)(*small.args, **small.kwargs)
    assert type(result.past_key_values) is type(expected.past_key_values)
    assert result.past_key_values.get_seq_length() == expected.past_key_values.get_seq_length() > 0
    kept, wanted = (
        [(layer.keys, layer.values) for layer in getattr(cache, "self_attention_cache", cache).layers]
        for cache in (result.past_key_values, expected.past_key_values)
    )
    for ours, theirs in zip(kept, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_file_cannot_call_the_class_of_a_cache():
    made = {"object": "transformers.cache_utils:DynamicCache", "new": False, "slot": 0, "arguments": []}
    made |= {"values": [], "items": [], "keys": [], "state": None}
    with pytest.raises(PackageError, match="DynamicCache would be made by calling the class"):
        decode_structure({"root": made, "paths": [], "changed": []})
    made["object"] = "transformers.cache_utils:StaticCache"
    with pytest.raises(PackageError, match="StaticCache, which is not known here"):
        decode_structure({"root": made, "paths": [], "changed": []})


class Opaque:
    """An object that is rebuilt by a function."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return make_opaque, (self.tensor,)


def make_opaque(tensor):
    return Opaque(tensor)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: Opaque(x + 1), "class make_opaque is built by code"),
        (lambda x: (x + 1, print), "class builtin_function_or_method cannot be stored"),
    ],
)
def test_values_that_are_not_data_are_refused_and_nothing_is_written(path, result, message):
    compiled = torchport.compile(result, (X,), target="host")
    with pytest.raises(PackageError, match=message):
        torchport.save(compiled, path)
    assert list(path.parent.glob("*.pt2*")) == []


def test_a_branch_that_is_an_op_is_refused(path):
    def model(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    compiled = torchport.compile(model, (X,), target="host")
    with pytest.raises(PackageError, match=r"cond.*graph of its own"):
        torchport.save(compiled, path)
    with pytest.raises(PackageError, match=r"cond.*graph of its own"):
        torchport.trace(model, X, target="host", settings=torchport.TraceSettings(child_process=False))


def test_values_that_json_lacks_round_trip(path):
    constants = (
        float("nan"),
        float("-inf"),
        1 + 2j,
        torch.float16,
        torch.Size([2]),
        torch.device("cpu"),
        (1,),
    )
    saved(path, lambda x: (x + 1, *constants), X)
    result = torchport.load(path)(X)
    assert repr(result[1:]) == repr(constants)


def test_weights_keep_their_memory_order(path):
    weight = torch.rand(4, 4).t()
    saved(path, lambda x: (x, weight.sort(stable=True).values * 1), X, options={"keep_ops": ["aten.mul"]})
    assert torch.equal(torchport.load(path)(X)[1], weight.sort().values)


def test_weights_of_host_ops_keep_their_memory_order(path):
    weight = torch.arange(24, dtype=torch.uint8).view(2, 3, 4).permute(2, 0, 1)
    saved(path, lambda x: (x, weight * 3), X, options={"keep_ops": ["aten.mul"]})
    assert torch.equal(torchport.load(path)(X)[1], weight * 3)


def test_a_stale_weight_is_not_saved(path):
    model = nn.Linear(4, 2).eval()
    compiled = torchport.compile(model, (X,), target="host")
    with torch.no_grad():
        model.weight.mul_(2)
    with pytest.raises(PackageError, match=r"a weight changed.*call the model once"):
        torchport.save(compiled, path)
    expected = compiled(X)
    torchport.save(compiled, path)
    assert torch.equal(torchport.load(path)(X), expected)


def test_values_that_an_island_was_not_built_for_are_refused(path):
    saved(path, nn.ReLU(), X, target="openvino")
    loaded = torchport.load(path)
    with pytest.raises(RuntimeRefusal, match=r"not finite.*with_graph=True"):
        loaded(X * float("nan"))


def test_gradients_and_training_are_refused(path):
    saved(path, nn.ReLU(), X)
    loaded = torchport.load(path)
    with pytest.raises(RuntimeRefusal, match="requires gradients"):
        loaded(X.clone().requires_grad_())
    with pytest.raises(RuntimeRefusal, match="cannot be trained"):
        loaded.train()
    assert loaded.eval() is loaded


@pytest.mark.parametrize(
    ("name", "message"), [("net.zip", r"must end in \.pt2: call it net\.pt2"), ("", "is a directory")]
)
def test_a_file_that_cannot_be_written(tmp_path, name, message):
    compiled = torchport.compile(nn.ReLU(), (X,), target="host")
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(PackageError, match=message):
        torchport.save(compiled, tmp_path / (name or "folder.pt2"))


def test_only_a_compiled_model_can_be_saved(path):
    with pytest.raises(PackageError, match="a ReLU is not a compiled model: compile it first"):
        torchport.save(nn.ReLU(), path)


def test_a_files_contents_can_be_read_without_loading_it(path):
    compiled = saved(path, nn.Linear(4, 2).eval(), X, target="openvino")
    package = read_package(path)
    assert (package.model, package.target) == ("Linear", "openvino")
    assert without_islands(package.programs[0].record) == without_islands(compiled.record)
    assert package.versions["torch"] == torch.__version__


def test_the_file_is_hardly_larger_than_its_weights(path, target):
    model = nn.Linear(1000, 1000).eval()
    saved(path, model, torch.rand(1, 1000), target=target)
    assert path.stat().st_size < 1.02 * 4 * (1000 * 1000 + 1000)
    names = zipfile.ZipFile(path).namelist()
    assert sum("/data/weights/weight_" in name for name in names) == 1


SAVE_UNTIL_KILLED = """
import resource, signal, sys, torch, torchport
compiled = torchport.compile(torch.nn.Linear(700, 700).eval(), (torch.ones(1, 700),), target="host")
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it: the limit would be an OSError
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
torchport.save(compiled, sys.argv[1])
"""


def test_killing_the_process_while_saving_keeps_the_old_file(path):
    saved(path, nn.Linear(700, 700).eval(), torch.ones(1, 700))
    before = path.read_bytes()
    ended = subprocess.run([sys.executable, "-c", SAVE_UNTIL_KILLED, str(path)], check=False).returncode
    assert ended == -signal.SIGXFSZ  # in the middle of the 2 MB file
    assert path.read_bytes() == before
    assert len(before) > 1_900_000
