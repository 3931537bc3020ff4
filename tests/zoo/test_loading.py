"""Loading models: what all sources have in common."""

import pytest
import torch

from torchport.errors import ZooError
from torchport.zoo import extras, load, names


def test_an_unknown_scheme_lists_the_nearest():
    with pytest.raises(ZooError, match="unknown model scheme 'torchvison': did you mean 'torchvision'"):
        load("torchvison:resnet18")
    with pytest.raises(ZooError, match="unknown model scheme 'timmm': did you mean 'timm'"):
        names("timmm")


def test_a_name_without_a_scheme_is_found_where_it_is():
    with pytest.raises(ZooError, match="did you mean 'torchvision:squeezenet1_1'"):
        load("squeezenet1_1")


def test_a_scheme_without_a_name_is_refused():
    with pytest.raises(ZooError, match="timm:: the model's name is missing: write timm:NAME"):
        load("timm:")


def test_a_library_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda library: False)
    for name, extra in (
        ("torchvision:resnet18", "torchvision"),
        ("timm:resnet18", "timm"),
        ("hf:gpt2", "hf"),
    ):
        with pytest.raises(ZooError) as caught:
            load(name, weights=False)
        assert f'pip install "torchport[{extra}]"' in str(caught.value)


def test_a_users_inputs_replace_the_made_ones(tmp_path):
    path = tmp_path / "inputs.py"
    path.write_text("import torch\ndef small(): return torch.ones(1, 3, 64, 64)\n")
    model = load("torchvision:squeezenet1_1", weights=False, inputs=f"{path}::small")
    assert model.args[0].shape == (1, 3, 64, 64)
    assert model.module(*model.args).shape == (1, 1000)


def test_a_batch_is_at_least_one():
    with pytest.raises(ZooError, match="the batch must be at least 1, not 0"):
        load("torchvision:squeezenet1_1", weights=False, batch=0)


def test_weights_have_no_values_on_meta():
    with pytest.raises(ZooError, match="on the meta device weights have no values"):
        load("timm:resnet18", device="meta")


def test_loading_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for name in ("torchvision:squeezenet1_1", "timm:test_vit", "hf:tiny-llama", "hf-small:bert"):
        load(name, weights=False)
    assert torch.equal(torch.get_rng_state(), before)
