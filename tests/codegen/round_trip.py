"""Writes a model as code, loads it as a user would, and compares it with the model."""

import importlib.util
import itertools
from pathlib import Path

import torch

import torchport
from torchport.structure import flatten

FORMS = {"hierarchical": True, "flat": False}
_count = itertools.count()


def load(path: Path):
    """Return the model of a generated file, created by its own loader."""
    spec = importlib.util.spec_from_file_location(f"generated_{next(_count)}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load_model()


def generate(model, args, folder: Path, kwargs=None, *, hierarchy=True, weights="net.pth", **options):
    """Return the text of a model's generated file, and the model that it loads."""
    graph = torchport.trace_graph(model, args, kwargs, **options)
    text = graph.generate_code(folder / "net.py", folder / weights, "Net", hierarchy=hierarchy)
    return text, load(folder / "net.py")


def assert_same_bits(actual, expected):
    """Assert that both hold the same tensors at the same paths, bit for bit."""
    assert type(actual) is type(expected)
    ours, theirs = flatten(actual), flatten(expected)
    assert ours.structure.paths == theirs.structure.paths
    for mine, eager in zip(ours.leaves, theirs.leaves, strict=True):
        assert mine.dtype == eager.dtype
        assert mine.shape == eager.shape
        assert torch.equal(mine.nan_to_num(), eager.nan_to_num())


def assert_round_trip(model, args, folder: Path, kwargs=None, *, others=(), **options):
    """Assert that both forms reproduce the model, on the example and on other inputs; return the texts."""
    texts = {}
    for form, hierarchy in FORMS.items():
        texts[form], made = generate(model, args, folder, kwargs, hierarchy=hierarchy, **options)
        for inputs in (args, *others):
            with torch.no_grad():
                torch.manual_seed(1)
                expected = model(*inputs, **(kwargs or {}))
                torch.manual_seed(1)
                actual = made(*inputs, **(kwargs or {}))
            assert_same_bits(actual, expected)
    return texts
