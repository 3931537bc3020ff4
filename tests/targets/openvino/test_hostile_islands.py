"""Untrusted islands: what OpenVINO would trust is checked first, and so are options from files."""

from __future__ import annotations

import json
import re
import tracemalloc
import zlib

import numpy
import pytest
import torch
from torch import nn

import torchport
from targets.ttnn.hostile import built, load_and_run
from torchport import targets
from torchport.errors import TargetError, TorchportError
from torchport.runtime.island import load_island
from torchport.targets import Artifact
from torchport.targets.openvino.format import FORMAT, pack, unpack
from torchport.targets.openvino.ir_check import check_ir

OPENVINO = targets.find("openvino")
X = torch.ones(2, 4)


@pytest.fixture(scope="module")
def island():
    return built("openvino")


def xml_of(artifact) -> str:
    return OPENVINO.readable(artifact)["model.xml"].decode()


def with_xml(artifact, text: str) -> Artifact:
    return with_packed(artifact, zlib.compress(text.encode()), len(text.encode()))


def with_packed(artifact, packed: bytes, size: object) -> Artifact:
    """Return the island with its packed XML replaced."""
    at = artifact.properties["xml_at"]
    payload = numpy.concatenate([artifact.payload[:at], numpy.frombuffer(packed, dtype=numpy.uint8)])
    return Artifact(payload, {**artifact.properties, "xml_bytes": len(packed), "xml_size": size})


def replaced(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def constant(**changes: object):
    """Return an attack that changes attributes of the convolution's weight."""

    def change(text: str) -> str:
        found = re.search(r'shape="8, 3, 3, 3" offset="(\d+)" size="864"', text)
        assert found
        values = {"shape": "8, 3, 3, 3", "offset": found[1], "size": 864, **changes}
        return text.replace(found[0], " ".join(f'{key}="{value}"' for key, value in values.items()), 1)

    return change


ATTACKS = {
    "an offset beyond the weights": constant(offset=999999),
    "an offset below zero": constant(offset=-16),
    "an offset that wraps around": constant(offset=2**64 - 16),
    "a constant longer than its bytes": constant(shape="800, 3, 3, 3"),
    "a constant shorter than its bytes": constant(size=8),
    "a huge constant": constant(shape=10**12, size=4 * 10**12),
    "a layer without its inputs": lambda text: text.replace('type="Const"', 'type="MaxPool"', 1),
    "a layer with too few inputs": replaced('type="ReLU"', 'type="MatMul"'),
    "a huge input": replaced('shape="1,3,8,8"', f'shape="{10**14}"'),
    "an input of any size": replaced('shape="1,3,8,8"', 'shape="-1,3,8,8"'),
    "another input": replaced('shape="1,3,8,8"', 'shape="1,3,9,9"'),
    "an op of an extension": replaced('type="ReLU" version="opset1"', 'type="ReLU" version="extension"'),
    "an op that is unknown": replaced('type="ReLU"', 'type="Evil"'),
    "an op with a state": replaced('type="ReLU"', 'type="ReadValue"'),
    "an op with a body": replaced('type="ReLU"', 'type="Loop"'),
    "a document type": replaced(
        '<?xml version="1.0"?>', '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "b">]>'
    ),
    "an entity from a file": replaced(
        '<?xml version="1.0"?>', '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a SYSTEM "/etc/passwd">]>'
    ),
    "a comment": replaced("<layers>", "<!-- layers --><layers>"),
    "another encoding": replaced('<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-16"?>'),
    "a constant without data": replaced('<data element_type="f32" shape="8', '<other shape="8'),
    "a constant with two data elements": replaced(
        '<data element_type="f32" shape="8',
        '<data element_type="f32" shape="0" /><data element_type="f32" shape="8',
    ),
    "deep nesting": replaced("<layers>", "<layers>" + "<a>" * 10_000 + "</a>" * 10_000),
    "text that is no XML": lambda _: "7",
    "an edge from nowhere": replaced('from-layer="0"', 'from-layer="999"'),
    "an edge from a port that is missing": replaced('from-port="0"', 'from-port="7"'),
    "an edge that is missing": replaced("<edge ", "<rt_info "),
    "a cycle": lambda text: text.replace('from-layer="4"', 'from-layer="6"', 1),
    "a layer twice": replaced('<layer id="1"', '<layer id="0"'),
    "a layer within a layer": replaced("<input>", "<body><layers><layer/></layers></body><input>"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_model_that_torchport_does_not_write_is_refused(island, attack):
    artifact, record, x, _ = island
    with pytest.raises(TargetError):
        load_and_run(with_xml(artifact, ATTACKS[attack](xml_of(artifact))), record, x)


@pytest.mark.parametrize(
    "model", [nn.LayerNorm(8, eps=1e-3), nn.GroupNorm(2, 4, eps=1e-3), nn.Hardtanh(-1e-3, 1e-3)]
)
def test_a_fraction_may_have_any_number_of_digits(model):
    """In XML, the float32 number nearest to 0.001 has 19 digits after its point."""
    compiled = torchport.compile(model.eval(), (torch.randn(2, 4, 8),), options={"speed_trial": False})
    assert compiled.coverage.stayed == ()


def test_the_model_as_it_is_gives_what_torch_gives(island):
    artifact, record, x, expected = island
    again = with_xml(artifact, xml_of(artifact))
    torch.testing.assert_close(load_and_run(again, record, x), expected)


def test_what_would_become_much_larger_is_refused_before_it_is_unpacked(island):
    artifact, record, x, _ = island
    bomb = zlib.compress(b" " * (1 << 26), 9)  # 64 MiB from 64 KiB
    honest, modest = with_packed(artifact, bomb, 1 << 26), with_packed(artifact, bomb, 5000)
    tracemalloc.start()
    try:
        with pytest.raises(TargetError, match="'xml_size' cannot be 67108864"):
            load_and_run(honest, record, x)
        with pytest.raises(TargetError, match="is damaged"):  # larger than it says
            load_and_run(modest, record, x)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("damage", ["truncated", "longer", "changed", "empty", "plain", "smaller"])
def test_what_is_packed_must_be_whole(island, damage):
    artifact, record, x, _ = island
    text = xml_of(artifact).encode()
    packed = zlib.compress(text)
    size = len(text) + (damage == "smaller")
    if damage == "changed":
        packed = packed[:-1] + bytes([packed[-1] ^ 1])  # a byte of its checksum
    given = {"truncated": packed[:-9], "longer": packed + b"0", "empty": b"", "plain": text}
    with pytest.raises(TargetError):
        load_and_run(with_packed(artifact, given.get(damage, packed), size), record, x)


def test_what_lies_in_a_payload_can_be_read_however_small_it_becomes():
    content = b" " * 10**6  # it could be compressed to a thousandth
    packed = pack(content)
    assert unpack(packed, {"size": len(content)}, "size") == content
    assert pack(b"<net/>" * 20).size < 100
    assert pack(b"<net/>" * 20, smaller=False).size > 100


@pytest.mark.parametrize(
    "properties",
    [
        {"weights_bytes": -1},
        {"weights_bytes": 10**12},
        {"weights_bytes": True},
        {"xml_at": 10**9},
        {"xml_bytes": 10**9},
        {"xml_bytes": "7"},
        {"xml_size": 0},
        {"xml_size": -1},
        {"xml_size": 10**9},
        {"xml_size": 7.0},
        {"copies": {"7": 0}},
        {"copies": {"0": 7}},
        {"copies": {"0": 0}},  # it has another shape
        {"copies": []},
        {"input_ranges": {"0": [0, 1]}},  # it holds no integers
        {"input_ranges": {"-1": [0, 1]}},
        {"finite_inputs": [7]},
        {"finite_inputs": [-1]},
        {"finite_inputs": "0"},
        {"sums": ["crossing"] * 5},
        {"sums": ["other"]},
        {"sums": [[]]},
        {"sums": 7},
        {"format": FORMAT + 1},
    ],
)
def test_properties_are_data_of_a_stranger(island, properties):
    artifact, record, x, _ = island
    with pytest.raises(TargetError):
        load_and_run(Artifact(artifact.payload, {**artifact.properties, **properties}), record, x)


def test_a_missing_property_is_refused(island):
    artifact, record, x, _ = island
    for key in artifact.properties:
        rest = {name: value for name, value in artifact.properties.items() if name != key}
        with pytest.raises(TargetError):
            load_and_run(Artifact(artifact.payload, rest), record, x)


class TestCompiledForm:
    """OpenVINO trusts it, so it is used only by the user who made it."""

    @pytest.fixture
    def embedded(self, island):
        artifact, record, x, expected = island
        options = OPENVINO.make_options(record.options)
        runner = OPENVINO.load(artifact, record.inputs, record.outputs, options)
        made = OPENVINO.embed(artifact, runner, options)
        if made is artifact:
            pytest.skip("the device has no compiled form")
        return made, record, x, expected

    @staticmethod
    def imported(artifact, record, x, expected) -> bool:
        options = OPENVINO.make_options(record.options)
        runner = OPENVINO.load(artifact, record.inputs, record.outputs, options)
        torch.testing.assert_close(runner([x])[0], expected)
        return runner.imported

    def test_its_maker_uses_it(self, embedded):
        assert self.imported(*embedded)

    def test_another_user_does_not_unless_trust_is_declared(self, embedded, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path / "another"))
        assert not self.imported(*embedded)
        monkeypatch.setenv("TORCHPORT_TRUST_COMPILED_FORM", "1")
        assert self.imported(*embedded)

    @pytest.mark.parametrize("seal", [None, "", 7, "0" * 64, "é"])
    def test_one_without_the_right_seal_is_not_used(self, embedded, seal):
        artifact, *rest = embedded
        entry = {**artifact.properties["compiled"], "seal": seal}
        assert not self.imported(
            Artifact(artifact.payload, {**artifact.properties, "compiled": entry}), *rest
        )

    def test_a_changed_byte_breaks_the_seal(self, embedded):
        artifact, *rest = embedded
        payload = artifact.payload.copy()
        payload[-100] ^= 1
        assert not self.imported(Artifact(payload, artifact.properties), *rest)

    @pytest.mark.parametrize("entry", [7, {}, {"made_for": {}}, {"at": -1, "bytes": 10**12}])
    def test_an_entry_of_another_kind_is_not_used(self, embedded, entry):
        artifact, *rest = embedded
        assert not self.imported(
            Artifact(artifact.payload, {**artifact.properties, "compiled": entry}), *rest
        )


class TestOptionsOfFiles:
    HARMLESS = (
        {},
        {"device": "CPU", "precision": "float32", "threads": 2},
        {"config": {"NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": "NO"}},
    )

    @pytest.mark.parametrize("given", HARMLESS)
    def test_what_chooses_how_to_compute_is_permitted(self, given):
        assert OPENVINO.options_from_file(given) == OPENVINO.make_options(given)

    @pytest.mark.parametrize(
        "given",
        [
            *[
                {"device": name}
                for name in ("AUTO", "HETERO:CPU", "MULTI:CPU", "BATCH:CPU", "PROXY", "CPU.x", 7)
            ],
            *[{"threads": count} for count in (-1, 10**6, "-3", True)],
            {"config": {"CACHE_DIR": "somewhere"}},
            {"config": {"WEIGHTS_PATH": "/etc/passwd"}},
            {"config": {"LOG_LEVEL": "LOG_TRACE"}},
            {"config": {"NUM_STREAMS": [1]}},
            {"config": {"PERFORMANCE_HINT": "/tmp"}},
            {"config": {"ENABLE_CPU_PINNING": {}}},
            {"config": []},
            {"nothing": 1},
        ],
    )
    def test_what_does_more_is_refused(self, given):
        with pytest.raises(TargetError):
            OPENVINO.options_from_file(given)

    def test_an_island_s_metadata_is_a_file_s(self, island, tmp_path):
        artifact, record, _, _ = island
        cache = tmp_path / "written"
        meta = {**record.to_json(), "options": {**record.options, "config": {"CACHE_DIR": str(cache)}}}
        with pytest.raises(TargetError, match="a file may not set"):
            load_island(torch.from_numpy(artifact.payload), json.dumps(meta))
        assert not cache.exists()

    def test_who_passes_it_by_hand_is_not_asked_and_is_told_when_it_is_saved(self, tmp_path):
        model = nn.Linear(4, 4).eval()
        compiled = torchport.compile(model, (X,), options={"config": {"CACHE_DIR": str(tmp_path / "own")}})
        torch.testing.assert_close(compiled(X), model(X).detach())
        assert (tmp_path / "own").exists()
        with pytest.raises(TorchportError, match="a file may not set the option config"):
            torchport.save(compiled, tmp_path / "model.pt2")
        assert not (tmp_path / "model.pt2").exists()


class TestWrongProperties:
    """A property that OpenVINO rejects is the user's mistake: the model must not just stay on the host."""

    @pytest.mark.parametrize("config", [{"NO_SUCH": 1}, {"PERFORMANCE_HINT": "FASTER"}, {"NUM_STREAMS": "x"}])
    def test_compile_and_explain_refuse_it(self, config):
        for public in (torchport.compile, torchport.explain):
            with pytest.raises(TargetError, match="rejects the config"):
                public(nn.Linear(4, 4), (X,), options={"config": config})

    def test_torch_compile_refuses_it(self, torch_compile):
        with pytest.raises(Exception, match="rejects the config"):
            torch_compile(nn.Linear(4, 4), "openvino", config={"NO_SUCH": 1})(X)


def test_a_check_is_not_slowed_down_by_what_it_refuses():
    """Each element is processed once, whatever is repeated."""
    data = '<data element_type="f32" shape=""/>'
    layer = '<layer id="{}" name="x" type="Parameter" version="opset1">' + data + "</layer>"
    layers = "".join(layer.format(number) for number in range(20_000))
    with pytest.raises(TargetError, match="does not have 1 inputs"):
        check_ir(
            f'<?xml version="1.0"?><net><layers>{layers}</layers></net>'.encode(),
            numpy.empty(0, dtype=numpy.uint8), inputs=1, outputs=1,
        )  # fmt: skip
