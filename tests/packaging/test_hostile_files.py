"""Damaged or crafted files: either a clear refusal or the right result, never anything else."""

import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from runtime.crafted_files import (
    change_host_program,
    change_meta,
    change_package,
    island_calls,
    read_records,
    write_records,
)
from torchport.errors import PackageError, RuntimeRefusal, StructureError, TargetError
from torchport.packaging.loaded_graph import LoadedGraph
from torchport.records import IslandMeta, TensorSpec
from torchport.runtime.island import LoadedIsland
from torchport.structure import flatten, flatten_call
from torchport.targets import Target
from without_assertions import PRELUDE

X = torch.tensor([[1.0, -2.0, 3.0, -4.0]])


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A good file, and its result."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    options = {"keep_ops": ["aten.relu", "aten.t"], "cache": False}
    compiled = torchport.compile(model, (X,), target="host", options=options)
    path = tmp_path_factory.mktemp("good") / "good.pt2"
    torchport.save(compiled, path)
    return path, compiled(X)


def check(path, expected):
    """Load and run a file: it is refused, or its result is right."""
    try:
        result = torchport.load(path)(X)
    except PackageError:
        return "refused"
    assert torch.equal(result, expected)
    return "right"


def damaged(package, changes, folder):
    path, expected = package
    good = path.read_bytes()
    target = folder / "damaged.pt2"
    seen = {"refused": 0, "right": 0}
    for change in changes:
        target.write_bytes(change(good))
        seen[check(target, expected)] += 1
    return seen


def test_truncations(package, tmp_path):
    draw = random.Random(0)
    changes = [lambda good: good[: draw.randrange(len(good))] for _ in range(1000)]
    assert damaged(package, changes, tmp_path)["refused"] == 1000


def flip(draw, good):
    bad = bytearray(good)
    bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
    return bytes(bad)


def test_flipped_bits(package, tmp_path):
    draw = random.Random(1)
    seen = damaged(package, [lambda good: flip(draw, good) for _ in range(1000)], tmp_path)
    assert seen["refused"] > 150  # the other bits are in records that only torch.export.load reads


def rewritten(path, folder, change, method=zipfile.ZIP_STORED):
    return change_package(path, folder / "crafted.pt2", change, method)


def graph_of(data):
    return data["programs"][0]["graph"]


def relu_of(data):
    return next(call for call in graph_of(data)["calls"] if call["op"] == "aten.relu.default")


def set_op(name):
    return lambda data: relu_of(data).update(op=name)


def set_tensor(**changes):
    return lambda data: next(iter(data["tensors"].values())).update(changes)


def set_result(node):
    return lambda data: data["programs"][0]["result"].update(root=node)


def set_argument(value):
    return lambda data: relu_of(data)["args"].__setitem__(0, value)


def add_call(op, *args, **kwargs):
    return lambda data: graph_of(data)["calls"].append({"op": op, "args": list(args), "kwargs": kwargs})


OBJECT = {"new": False, "slot": 0, "arguments": [], "state": None, "items": [], "keys": [], "values": []}


def deep(levels):
    nested = {"tuple": []}
    for _ in range(levels):
        nested = {"tuple": [nested]}
    return nested


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema="torchport.package/9"), "the schema is 'torchport.package/9'"),
        (lambda data: data.update(schema="torchport.package/2"), "the schema is 'torchport.package/2'"),
        (lambda data: data.update(programs=[]), "contains no program"),
        (lambda data: data.pop("tensors"), "the field is missing"),
        (set_op("aten.from_file.default"), "works on raw memory"),
        (set_op("aten.manual_seed.default"), "not an op on tensors"),
        (set_op("inductor._reinterpret_tensor.default"), "only if the caller permits it"),
        (set_op("aten.relu_.default"), "writes to its arguments"),
        (set_op("aten.native_batch_norm.default"), "writes to its arguments"),
        (set_op("aten.nothing.default"), "this torch has no op"),
        (set_op("aten.__class__.__init__"), "not an op of torch"),
        (set_op("load_library"), "not from torch"),
        (set_op("os.system"), "not from torch"),
        (set_tensor(shape=[2**40]), "does not have the size of its bytes"),
        (set_tensor(shape=[-4]), "has the impossible shape"),
        (set_tensor(strides=[7]), "does not have the size of its bytes"),
        (set_tensor(dtype="load"), "'load' is not a dtype"),
        (set_result({"object": "subprocess:Popen", **OBJECT}), "class subprocess.Popen, which is not known"),
        (set_result({"object": "transformers.utils:logging", **OBJECT}), "not known here"),
        (set_result({"object": "transformers.convert_slow_tokenizer:Converter", **OBJECT}), "not known here"),
        (set_result({"value": {"class": "os:system"}}), "not known here"),
        (set_result({"value": {"anything": 1}}), "is malformed"),
        (set_result({"leaf": 5}), "which it does not contain"),
        (set_result({"leaf": -1}), "which it does not contain"),
        (set_result(deep(150)), "more than 200 levels"),
        (set_argument({"value": 99}), "not computed before"),
        (set_argument({"node": "nobody"}), "is malformed"),
        (lambda data: data["programs"][0]["tensors"].update(island_0="../../etc/passwd"), "has no tensor"),
        (lambda data: graph_of(data).update(outputs=[]), "returns fewer tensors than its result has"),
        (add_call("aten.copy_.default", {"value": 0}, {"value": 0}), "its record does not name"),
        (add_call("aten.copy_.default", {"value": 3}, {"value": 0}), "only write to an input or buffer"),
        (add_call("torchport.island.default", {"value": 0}, "{}", []), "an island takes its payload"),
    ],
)
def test_crafted_files(package, tmp_path, change, message):
    target = rewritten(package[0], tmp_path, change)
    with pytest.raises(PackageError) as caught:
        torchport.load(target)
    assert message in str(caught.value)
    assert str(target) in str(caught.value)


CODE = 'x=__import__("os").environ.__setitem__("TORCHPORT_WAS_HERE","1")'


def rename_attribute(data):
    """Use code as an attribute's name, everywhere in the file."""
    program = data["programs"][0]
    old = graph_of(data)["tensors"][0]
    graph_of(data)["tensors"][0] = CODE
    program["tensors"][CODE] = program["tensors"].pop(old)


def names_of_before(data):
    """Use code for the names that version 2 of the format had."""
    graph = graph_of(data)
    graph.update(inputs=[CODE], attributes={CODE: CODE})
    for call in graph["calls"]:
        call["name"] = CODE


@pytest.mark.parametrize(
    "change",
    [
        rename_attribute,
        names_of_before,
        lambda data: graph_of(data)["calls"][0].update(name=CODE),
        lambda data: next(c for c in graph_of(data)["calls"] if "relu" in c["op"])["kwargs"].update(
            {CODE: 1}
        ),
        lambda data: next(c for c in graph_of(data)["calls"] if "relu" in c["op"]).update(args=[CODE]),
        lambda data: data["programs"][0]["record"].update(model=CODE, mutated=[CODE]),
        lambda data: data["programs"][0]["inputs"].update(paths=[CODE]),
        lambda data: change_meta(island_calls(data)[0], lambda meta: meta.update(name=CODE)),
    ],
)
def test_no_text_from_a_file_is_executed(package, tmp_path, change):
    target = rewritten(package[0], tmp_path, change)
    with contextlib.suppress(Exception):  # refused, or right, or an op rejects a string
        assert torch.equal(torchport.load(target)(X), package[1])
    assert "TORCHPORT_WAS_HERE" not in os.environ


def host_call(op, args=None, **kwargs):
    def change(program):
        call = program["calls"][0]
        call.update(op=op, kwargs=kwargs)
        if args is not None:
            call["args"] = args

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (host_call("aten.relu_.default", [{"value": 0}]), "writes to its arguments"),
        (host_call("aten.copy_.default", [{"value": 0}, {"value": 1}]), "writes to its arguments"),
        (host_call("torchport.island.default", [{"value": 0}, "{}", []]), "not from torch"),
        (host_call("aten.from_file.default", ["/etc/passwd"]), "works on raw memory"),
        (host_call("aten.manual_seed.default", [0]), "not an op on tensors"),
        (host_call("inductor._reinterpret_tensor.default", [{"value": 0}, [9], [1]]), "permits it"),
        (
            host_call("aten.relu.default", [{"value": 0}], **{CODE: 1}),
            "does not take 1 positional arguments and",
        ),
        (lambda program: program.update(tensors=[CODE]), "is missing"),
        (lambda program: program.update(complexes=[CODE]), "is not complex"),
    ],
)
def test_host_islands_call_only_permitted_ops(package, tmp_path, change, message):
    target = change_host_program(package[0], tmp_path / "crafted.pt2", change)
    with pytest.raises(PackageError) as caught:
        torchport.load(target)
    assert message in str(caught.value)
    assert "TORCHPORT_WAS_HERE" not in os.environ


def test_strides_cannot_read_memory_beside_an_input(package, tmp_path):
    change = host_call("aten.as_strided.default", [{"value": 0}, [1, 8], [8, 1]])
    model = torchport.load(change_host_program(package[0], tmp_path / "crafted.pt2", change))
    secret = torch.cat([X, torch.full((1, 4), 42.0)])
    with pytest.raises(RuntimeRefusal, match="strides that go out of the tensor"):
        model(secret[:1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            host_call("aten.mm.default", [{"value": 0}, {"value": 0}]),
            "aten.mm.default raised RuntimeError: mat1",
        ),
        (host_call("aten.relu.default", ["x"]), "aten.relu.default raised RuntimeError: aten::relu"),
        (lambda program: program.update(inputs=2), "the graph raised TypeError"),
        (lambda program: program.update(outputs=[]), "returned unexpected outputs"),
        (lambda program: program.update(outputs=[None]), "returned unexpected outputs"),
    ],
)
def test_what_an_island_raises_is_an_error_that_names_the_op(package, tmp_path, change, message):
    model = torchport.load(change_host_program(package[0], tmp_path / "crafted.pt2", change))
    with pytest.raises((RuntimeRefusal, TargetError), match=message):
        model(X)


def test_what_the_hosts_graph_raises_is_an_error_that_names_the_op(package, tmp_path):
    model = torchport.load(rewritten(package[0], tmp_path, set_argument("x")))
    with pytest.raises(
        RuntimeRefusal, match=r"Sequential: aten.relu.default raised RuntimeError: aten::relu"
    ):
        model(X)


def test_a_graph_that_returns_too_few_tensors_is_refused(package):
    graph = LoadedGraph(
        LoadedIsland(island_meta(), lambda _: []),
        flatten(X).structure,
        torchport.load(package[0]).record,
    )
    with pytest.raises(RuntimeRefusal, match="returns fewer tensors than its result has"):
        graph.run_eagerly(flatten_call((X,), {}))


def island_meta():
    return IslandMeta("general", "host", "", (TensorSpec((1, 4), "float32"),), (), {}, {}, {})


def test_an_island_is_not_called_with_tensors_that_it_was_not_built_for(package, tmp_path):
    """A file's host graph may not match its islands, which read memory without checking it."""

    def change(data):
        island_calls(data)[-1]["args"][2] = [{"value": 0}]
        for call in island_calls(data):
            change_meta(call, lambda meta: meta["inputs"][0].update(shape=[1, 400]))

    with pytest.raises(RuntimeRefusal, match=r"built for float32\[1, 400\]"):
        torchport.load(rewritten(package[0], tmp_path, change))(X)


def test_a_single_island_must_match_the_programs_inputs(tmp_path):
    path = tmp_path / "whole.pt2"
    torchport.save(torchport.compile(nn.Linear(4, 2).eval(), (X,), target="host"), path)

    def change(data):
        data["programs"][0]["leaves"][0]["shape"] = [1, 8]

    with pytest.raises(PackageError, match="takes other inputs than the island"):
        torchport.load(rewritten(path, tmp_path, change))


def test_a_thousand_names_for_one_record_use_its_memory_once(tmp_path):
    weight, path = torch.rand(1 << 18), tmp_path / "good.pt2"
    on_host = {"keep_ops": ["aten.mul"]}
    x = torch.rand(1 << 18)
    compiled = torchport.compile(lambda x: x * weight, (x,), target="host", options=on_host)
    torchport.save(compiled, path)
    records = read_records(path)
    data = json.loads(records["extra/torchport.json"])
    table = json.loads(records["data/weights/model_weights_config.json"])
    program = data["programs"][0]
    [key] = program["tensors"].values()
    for number in range(1000):
        program["tensors"][f"n{number}"] = f"model/n{number}"
        data["tensors"][f"model/n{number}"] = data["tensors"][key]
        table["config"][f"program.n{number}"] = table["config"][f"program.{key.partition('/')[2]}"]
        graph_of(data)["tensors"].append(f"n{number}")
    for call in graph_of(data)["calls"]:  # results are numbered after the tensors
        call["args"] = [{"value": arg["value"] + (1000 if arg["value"] > 1 else 0)} for arg in call["args"]]
    graph_of(data)["outputs"] = [{"value": item["value"] + 1000} for item in graph_of(data)["outputs"]]
    records["extra/torchport.json"] = json.dumps(data).encode()
    records["data/weights/model_weights_config.json"] = json.dumps(table).encode()
    many = write_records(records, tmp_path / "many.pt2")
    model = torchport.load(many)
    assert torch.equal(model(x), compiled(x))
    tensors = list(model._programs[0].program.graph_module.buffers())
    assert len(tensors) == 1001
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_many_islands_with_one_payload_are_refused(tmp_path):
    path, x = tmp_path / "good.pt2", torch.rand(1, 300)
    options = {"keep_ops": ["aten.relu"], "cache": False}
    model = nn.Sequential(nn.Linear(300, 300), nn.ReLU()).eval()
    torchport.save(torchport.compile(model, (x,), target="host", options=options), path)

    def change(data):
        first = json.dumps(island_calls(data)[0])
        for number in range(20):
            call = json.loads(first)
            change_meta(call, lambda meta: meta.update(name=f"i{number}"))
            graph_of(data)["calls"].append(call)

    with pytest.raises(PackageError, match="many times as large as the file"):
        torchport.load(rewritten(path, tmp_path, change))


def test_a_mutated_buffer_may_not_share_its_bytes(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total += x[0]
            return self.total * 1

    path = tmp_path / "good.pt2"
    torchport.save(torchport.compile(Counts().eval(), (X,), target="host"), path)

    records = read_records(path)
    data = json.loads(records["extra/torchport.json"])
    table = json.loads(records["data/weights/model_weights_config.json"])
    write = next(call for call in graph_of(data)["calls"] if call["op"] == "aten.copy_.default")
    name = graph_of(data)["tensors"][write["args"][0]["value"] - graph_of(data)["inputs"]]
    key = data["programs"][0]["tensors"][name]
    data["tensors"][key + "2"] = data["tensors"][key]
    old = f"program.{key.partition('/')[2]}"
    table["config"][old + "2"] = table["config"][old]
    records["extra/torchport.json"] = json.dumps(data).encode()
    records["data/weights/model_weights_config.json"] = json.dumps(table).encode()
    with pytest.raises(PackageError, match="shares its bytes with another tensor"):
        torchport.load(write_records(records, tmp_path / "shared.pt2"))


def test_overlapping_records_are_refused(package, tmp_path):
    path, bad = package[0], tmp_path / "overlap.pt2"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first, second = archive.infolist()[:2]
    name = second.filename.encode()
    at = content.rindex(name) - 46  # in the central directory at the end
    content[at + 42 : at + 46] = struct.pack("<I", first.header_offset)
    bad.write_bytes(content)
    with pytest.raises(PackageError, match="overlap"):
        torchport.load(bad)


def test_a_records_two_sizes_must_be_equal(package, tmp_path):
    """Overlaps are detected by one of a record's two sizes, but the other is used to read it."""
    path, bad = package[0], tmp_path / "sizes.pt2"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("extra/torchport.json"))
    at = content.rindex(name.encode()) - 46  # in the central directory at the end
    content[at + 20 : at + 24] = struct.pack("<I", 0)  # its compressed size
    bad.write_bytes(content)
    with pytest.raises(PackageError, match="impossible size"):
        torchport.load(bad)


@pytest.mark.parametrize("node", [{"input": 9}, {"input_object": 9}, {"known": 9}])
def test_a_result_with_a_dangling_reference_is_refused(package, tmp_path, node):
    model = torchport.load(rewritten(package[0], tmp_path, set_result(node)))
    with pytest.raises(StructureError, match="9, which does not exist"):
        model(X)


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(PackageError, match=r"none\.pt2: cannot be read: No such file"):
        torchport.inspect_package(tmp_path / "none.pt2")


def test_lone_surrogates_in_names(tmp_path):
    """File names may contain lone surrogates, which are replaced; a result's key that has one is refused."""
    path = tmp_path / "net.pt2"
    named = torchport.compile(
        nn.ReLU(), (X,), target="host", options={"cache": False}, name="m\udcff.py::load"
    )
    torchport.save(named, path)
    assert torchport.load(path).package.model == "m\ufffd.py::load"
    keyed = torchport.compile(lambda x: {"\udcff": x + 1}, (X,), target="host", options={"cache": False})
    with pytest.raises(PackageError, match="which no file can hold"):
        torchport.save(keyed, path)


@pytest.mark.parametrize("call", [torchport.load, torchport.inspect_package, torchport.run_package])
def test_what_is_not_a_file_is_refused_before_it_is_read(call, tmp_path):
    pipe = tmp_path / "pipe.pt2"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(PackageError, match=r"it is a (FIFO|device|directory), not a regular file"):
            call(path)


@pytest.fixture
def beside(tmp_path):
    """A package whose weights file has been moved to another folder."""
    folder, other = tmp_path / "package", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    compiled = torchport.compile(nn.Linear(4, 2).eval(), (X,), target="host", options={"cache": False})
    torchport.save(compiled, folder / "net.pt2", separate_weights=True)
    [weights] = folder.glob("*.safetensors")
    weights.rename(other / weights.name)
    del compiled
    torchport.runtime.island._loaded.clear()
    return folder / "net.pt2", other / weights.name


@pytest.mark.parametrize("name", ["{}", "../other/{name}", "./{name}", "", "..", "sub/{name}", "C:{name}"])
def test_weights_are_searched_for_only_beside_the_package(beside, name, monkeypatch):
    path, weights = beside
    monkeypatch.chdir(weights.parent)
    file = name.format(weights, name=weights.name) if name != "{}" else str(weights)

    def change(data):
        change_meta(island_calls(data)[0], lambda meta: meta["properties"]["payload_in"].update(file=file))

    bad = change_package(path, path.with_name("crafted.pt2"), change)
    with pytest.raises(PackageError, match="is not a file beside the package"):
        torchport.load(bad)


def test_repeated_payloads_beside_a_package_are_refused(beside):
    path, weights = beside
    weights.rename(path.with_name(weights.name))

    def change(data):
        first = json.dumps(island_calls(data)[0])
        for number in range(40):
            call = json.loads(first)
            change_meta(call, lambda meta: meta.update(name=f"i{number}"))
            graph_of(data)["calls"].append(call)

    with pytest.raises(PackageError, match="many times as large as the file"):
        torchport.load(change_package(path, path.with_name("crafted.pt2"), change))


def test_an_untrusted_package_can_be_overwritten(package, tmp_path):
    """Its references to files beside it are harmless: no error, and no other files are removed."""
    compiled = torchport.compile(nn.Linear(4, 2).eval(), (X,), target="host", options={"cache": False})
    folder = tmp_path / "crafted-01234567.safetensors"
    folder.mkdir()
    for entry in ({"name": "x"}, {"file": folder.name}):

        def change(data, entry=entry):
            data["programs"][0]["record"]["islands"][0]["properties"]["payload_in"] = entry

        path = rewritten(package[0], tmp_path, change)
        torchport.save(compiled, path)
        assert torch.equal(torchport.load(path)(X), compiled(X))
    assert folder.is_dir()


def test_a_symbolic_link_is_not_followed_out_of_the_folder(beside, monkeypatch):
    path, weights = beside
    link = path.with_name(weights.name)
    link.symlink_to(weights)
    with pytest.raises(PackageError, match="is outside the package"):
        torchport.load(path)
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(PackageError, match="is missing"):
        torchport.load(path)
    link.unlink()
    monkeypatch.setenv("TORCHPORT_WEIGHTS_DIR", str(weights.parent))
    torchport.load(path)


def test_ops_of_another_library_are_called_only_if_the_caller_names_it(tmp_path):
    library = torch.library.Library("strangers", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    path = tmp_path / "net.pt2"
    compiled = torchport.compile(lambda x: torch.ops.strangers.twice(x) + 1, (X,), target="host")
    torchport.save(compiled, path, with_graph=True)
    with pytest.raises(PackageError, match=r"namespaces=\['strangers'\]"):
        torchport.load(path)
    loaded = torchport.load(path, namespaces=["strangers"])
    for x in (X, X.repeat(3, 1)):
        assert torch.equal(loaded(x), x * 2 + 1)


def test_a_model_with_an_op_that_no_file_may_call_is_refused_when_saved(tmp_path):
    class Unpacks(nn.Module):
        def forward(self, x):
            return torch.linalg.ldl_solve(x, torch.arange(1, 4, dtype=torch.int32), x) + 1

    x = torch.eye(3)
    compiled = torchport.compile(Unpacks(), (x,), target="host")
    assert torch.equal(compiled(x), Unpacks()(x))
    with pytest.raises(PackageError, match=r"linalg_ldl_solve.*does not check.*torchport\.trace"):
        torchport.save(compiled, tmp_path / "net.pt2")
    torchport.trace(
        Unpacks().eval(), x, target="host", settings=torchport.TraceSettings(child_process=False)
    ).save(tmp_path / "net.pt")
    assert torch.equal(torch.jit.load(tmp_path / "net.pt")(x), Unpacks()(x))


def test_options_from_a_file_are_checked_by_the_target(package, tmp_path, monkeypatch):
    def refuse(self, given):
        raise TargetError(f"no file may set {sorted(given)[0]}")

    torchport.runtime.island._loaded.clear()
    monkeypatch.setattr(Target, "options_from_file", refuse)
    change = lambda data: change_meta(island_calls(data)[0], lambda meta: meta.update(versions={}))  # noqa: E731
    with pytest.raises(PackageError, match="no file may set cache"):
        torchport.load(rewritten(package[0], tmp_path, change))


@pytest.mark.usefixtures("forked_python")
def test_attacks_are_also_refused_with_assertions_disabled(package, tmp_path):
    """`python -O` drops every `assert`."""
    attacks = {
        "op": set_op("aten.relu_.default"),
        "root": set_result(3),
        "state": set_result({"object": "collections:OrderedDict", **OBJECT, "state": {"value": 3}}),
        "paths": lambda data: data["programs"][0]["result"].update(paths=3),
        "calls": lambda data: graph_of(data).update(calls=3),
        "tensors": lambda data: graph_of(data).update(tensors={}),
        "meta": lambda data: change_meta(island_calls(data)[0], lambda meta: meta.pop("digest")),
        "size": lambda data: change_meta(
            island_calls(data)[0], lambda meta: meta["properties"].update(program_bytes="7")
        ),
        "shape": set_tensor(shape=["4", 4]),
        "versions": lambda data: data.update(versions=3),
    }
    paths = [change_package(package[0], tmp_path / f"{name}.pt2", change) for name, change in attacks.items()]
    code = PRELUDE + (
        "import torchport, torchport.errors\n"
        "for path in sys.argv[1:]:\n"
        "    try: torchport.load(path)\n"
        "    except torchport.errors.PackageError: print('refused')\n"
        "    else: raise SystemExit(path)\n"
        "for option in ({'config': {'CACHE_DIR': 'x'}}, {'device': 'AUTO'}):\n"
        "    try: torchport.targets.find('openvino').options_from_file(option)\n"
        "    except torchport.errors.TargetError: print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["refused"] * (len(paths) + 2)


def test_a_payload_of_another_target(package, tmp_path):
    change = lambda data: change_meta(island_calls(data)[0], lambda meta: meta.update(target="openvino"))  # noqa: E731
    with pytest.raises(PackageError, match=r"the target has no option|format 3, not"):
        torchport.load(rewritten(package[0], tmp_path, change))


def test_a_weight_changed_together_with_its_crc_is_detected(tmp_path):
    weight, path, target = torch.rand(4), tmp_path / "good.pt2", tmp_path / "changed.pt2"
    on_host = {"keep_ops": ["aten.mul"]}
    torchport.save(torchport.compile(lambda x: x * weight, (X,), target="host", options=on_host), path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/data/weights/weight_" in name:
                content = bytes([content[0] ^ 1]) + content[1:]
            new.writestr(name, content)
    with pytest.raises(PackageError, match="checksum does not match"):
        torchport.load(target)


def test_a_compressed_archive_is_refused(package, tmp_path):
    target = rewritten(package[0], tmp_path, lambda data: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(PackageError, match="impossible size"):
        torchport.load(target)


def test_other_files_are_refused(tmp_path):
    empty, text, other = tmp_path / "empty.pt2", tmp_path / "text.pt2", tmp_path / "other.pt2"
    empty.write_bytes(b"")
    text.write_text("not a zip")
    torch.export.save(torch.export.export(nn.ReLU(), (X,)), other)
    for path, message in ((empty, "is not a package"), (text, "is not a package"), (other, "not written by")):
        with pytest.raises(PackageError, match=message):
            torchport.load(path)
    with pytest.raises(PackageError, match="cannot be read: No such file"):
        torchport.load(tmp_path / "missing.pt2")


def test_an_island_refuses_tensors_that_it_was_not_built_for(target):
    compiled = torchport.compile(nn.Linear(4, 2).eval(), (X,), target=target)
    graph = compiled.current_programs[0].program.graph_module
    for wrong, message in ((X.repeat(2, 1), r"float32\[2, 4\]"), (X.double(), r"float64\[1, 4\]")):
        with pytest.raises(RuntimeRefusal, match=message + r".*built for float32\[1, 4\]"):
            graph(wrong)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x, more):
        self.count.add_(1)
        more.add_(1)
        return x + self.count


def test_an_input_that_the_record_does_not_name_is_not_written(tmp_path):
    compiled = torchport.compile(Counts().eval(), (X, X.clone()), target="host", options={"cache": False})
    assert set(compiled.record.mutated) == {"count", "[0][1]"}
    torchport.save(compiled, tmp_path / "good.pt2")
    [program] = torchport.inspect_package(tmp_path / "good.pt2").programs
    assert program.mutated == compiled.record.mutated
    given = X.clone()
    torchport.load(tmp_path / "good.pt2")(X, given)
    assert torch.equal(given, X + 1)

    def write_elsewhere(data):
        for call in graph_of(data)["calls"]:
            if call["op"] == "aten.copy_.default" and call["args"][0] == {"value": 1}:  # the second input
                call["args"][0] = {"value": 0}

    with pytest.raises(PackageError, match="mutates inputs or buffers that its record does not name"):
        torchport.load(change_package(tmp_path / "good.pt2", tmp_path / "bad.pt2", write_elsewhere))


@pytest.mark.parametrize("path", [None, 3, b"net.pt2", [], "a\0b.pt2"])
def test_what_is_no_path_is_refused(package, path):
    compiled = torchport.compile(nn.ReLU(), (X,), target="host")
    for call in (torchport.load, torchport.inspect_package, lambda path: torchport.save(compiled, path)):
        with pytest.raises(PackageError, match="is not a path: give a string"):
            call(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classes": None}, "classes is no list: None"),
        ({"classes": ["x"]}, "classes has 'x', which is not a type"),
        ({"namespaces": "torchvision"}, "namespaces is no list: 'torchvision'"),
        ({"namespaces": [3]}, "namespaces has 3, which is not a str"),
    ],
)
def test_wrong_arguments_are_not_blamed_on_the_file(package, given, message):
    with pytest.raises(PackageError, match=message):
        torchport.load(package[0], **given)
