"""Files that are damaged or made up: one clear refusal, or the right result; never anything else."""

import json
import random
import zipfile

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import PackageError, RuntimeRefusal

X = torch.tensor([[1.0, -2.0, 3.0, -4.0]])


@pytest.fixture
def package(tmp_path):
    """A good file, and what it gives."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    compiled = torchport.compile(model, (X,), target="host", options={"keep_ops": ["aten.relu", "aten.t"]})
    path = tmp_path / "good.pt2"
    torchport.save(compiled, path)
    return path, compiled(X)


def check(path, expected):
    """Load and run a file: refused, or right."""
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
    assert seen["refused"] > 150  # the others hit what only torch.export.load reads


def rewritten(path, folder, change, method=zipfile.ZIP_STORED):
    """Return the file with another `torchport.json`; checksums of the archive are right again."""
    target = folder / "crafted.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("extra/torchport.json"):
                data = json.loads(content)
                change(data)
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return target


def first_call(data):
    return data["programs"][0]["graph"]["calls"][0]


def set_op(name):
    def change(data):
        calls = data["programs"][0]["graph"]["calls"]
        next(call for call in calls if call["op"] == "aten.relu.default")["op"] = name

    return change


def set_tensor(**changes):
    return lambda data: next(iter(data["tensors"].values())).update(changes)


def set_result(node):
    return lambda data: data["programs"][0]["result"].update(root=node)


OBJECT = {"new": False, "slot": 0, "arguments": [], "state": None, "items": [], "keys": [], "values": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema="torchport.package/9"), "the schema is 'torchport.package/9'"),
        (lambda data: data.update(programs=[]), "holds no program"),
        (lambda data: data.pop("tensors"), "the field is missing"),
        (set_op("aten.from_file.default"), "not called because a file says so"),
        (set_op("aten.relu_.default"), "writes to its arguments"),
        (set_op("aten.nothing.default"), "this torch has no op"),
        (set_op("aten.__class__.__init__"), "no op of torch's"),
        (set_op("load_library"), "no op"),
        (set_tensor(shape=[2**40]), "has another size than its bytes"),
        (set_tensor(shape=[-4]), "which is none"),
        (set_tensor(strides=[7]), "has another size than its bytes"),
        (set_tensor(dtype="load"), "'load' is no dtype"),
        (set_result({"object": "subprocess:Popen", **OBJECT}), "class subprocess.Popen, which is not known"),
        (set_result({"object": "transformers.utils:logging", **OBJECT}), "not known here"),
        (set_result({"value": {"class": "os:system"}}), "not known here"),
        (set_result({"value": {"anything": 1}}), "damaged"),
        (lambda data: first_call(data)["args"].__setitem__(0, {"node": "nobody"}), "damaged"),
        (lambda data: data["programs"][0]["tensors"].update(island_0="../../etc/passwd"), "damaged"),
    ],
)
def test_crafted_files(package, tmp_path, change, message):
    target = rewritten(package[0], tmp_path, change)
    with pytest.raises(PackageError) as caught:
        torchport.load(target)
    assert message in str(caught.value)
    assert str(target) in str(caught.value)


def test_a_payload_of_another_target(package, tmp_path):
    def change(data):
        call = next(c for c in data["programs"][0]["graph"]["calls"] if "island" in c["op"])
        call["args"][1] = call["args"][1].replace('"target": "host"', '"target": "openvino"')

    with pytest.raises(PackageError, match=r"the target has no option|format 2, not"):
        torchport.load(rewritten(package[0], tmp_path, change))


def test_a_weight_that_was_changed_with_its_archive_is_noticed(tmp_path):
    weight, path, target = torch.rand(4), tmp_path / "good.pt2", tmp_path / "changed.pt2"
    on_host = {"keep_ops": ["aten.mul"]}
    torchport.save(torchport.compile(lambda x: x * weight, (X,), target="host", options=on_host), path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/data/weights/weight_" in name:
                content = bytes([content[0] ^ 1]) + content[1:]
            new.writestr(name, content)
    with pytest.raises(PackageError, match="checksum is another one"):
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
    for path, message in ((empty, "is no package"), (text, "is no package"), (other, "not written by")):
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
