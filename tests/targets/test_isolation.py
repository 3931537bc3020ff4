"""Islands round-trip through files: built from them, they compute the same results."""

import pytest
import torch
from torch import nn

import torchport
from torchport import targets
from torchport.compiler.normalise import normalise
from torchport.compiler.plan import Planner
from torchport.targets.island_files import read_artifact, read_island, write_artifact, write_island


class Embeds(nn.Module):
    """Integers with bounds, weights in another memory order, several outputs."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.weight = nn.Parameter(torch.rand(4, 3).t())

    def forward(self, ids, x):
        found = self.table(ids + 1)
        return found @ self.weight.t(), (x.transpose(0, 1) * 2).relu(), ids * 2


def planned(target):
    """Return the islands of the model."""
    found = targets.find(target)
    args = (torch.tensor([[0, 1, 5]]), torch.rand(3, 2).t())
    captured = torchport.capture.export(Embeds().eval(), args)
    planner = Planner("embeds", normalise(captured, found), found, found.make_options({}))
    return [piece.island for piece in planner.plan().pieces.values()]


def test_an_island_survives_its_files(target, tmp_path):
    found = targets.find(target)
    islands = planned(target)
    assert islands
    for number, island in enumerate(islands):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_island(island, folder)
        again = read_island(folder)
        assert (again.name, again.inputs, again.outputs) == (island.name, island.inputs, island.outputs)
        options = found.make_options({})
        ours, theirs = found.build(again, options), found.build(island, options)
        sizes = {"xml_bytes", "xml_size"}  # names in the XML are numbered anew
        assert {key: ours.properties[key] for key in ours.properties.keys() - sizes} == {
            key: theirs.properties[key] for key in theirs.properties.keys() - sizes
        }
        rest = [each.payload.size - each.properties.get("xml_bytes", 0) for each in (ours, theirs)]
        assert rest[0] == pytest.approx(rest[1], abs=200)
        inputs = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in island.inputs]
        results = [
            found.load(artifact, island.inputs, island.outputs, options)(inputs)
            for artifact in (ours, theirs)
        ]
        assert all(torch.equal(left, right) for left, right in zip(*results, strict=True))


def test_an_artefact_survives_its_files(tmp_path):
    [island, *_] = planned("host")
    artifact = targets.find("host").build(island, targets.find("host").make_options({}))
    write_artifact(artifact, tmp_path)
    again = read_artifact(tmp_path)
    assert again.payload.tobytes() == artifact.payload.tobytes()
    assert again.properties == artifact.properties
