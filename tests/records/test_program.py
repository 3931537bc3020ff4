"""The record of a compiled program."""

import json

import torch
from torch import nn

import torchport
from torchport.records import IslandMeta, ProgramRecord


def test_the_record_of_a_compiled_model_survives_json(target):
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).eval()
    record = torchport.compile(model, (torch.ones(1, 2),), target=target, name="small").record
    assert ProgramRecord.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record
    assert (record.model, record.target, record.frozen) == ("small", target, ("0.bias", "0.weight"))
    assert [str(spec) for spec in record.inputs.values()] == ["float32[1, 2]"]
    assert {path: str(spec) for path, spec in record.outputs.items()} == {"output": "float32[1, 3]"}
    assert record.versions["torch"] == torch.__version__


def test_the_metadata_of_an_island_is_small_and_survives_json(target):
    model = nn.Linear(200, 200).eval()
    [meta] = torchport.compile(model, (torch.ones(1, 200),), target=target).record.islands
    text = json.dumps(meta.to_json())
    assert len(text) < 2000  # it does not contain the weights, which have 160 kB
    assert IslandMeta.from_json(json.loads(text)) == meta


def test_written_buffers_are_named():
    model = nn.BatchNorm1d(3).train()
    record = torchport.compile(model, (torch.ones(2, 3),), target="host").record
    assert set(record.mutated) == {"running_mean", "running_var", "num_batches_tracked"}
