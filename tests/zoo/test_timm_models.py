"""timm's models by name."""

import pytest
import torch

from torchport.errors import ZooError
from torchport.zoo import load, names, network


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mobilenetv3_small_050", (1, 3, 224, 224)),
        ("test_vit", (1, 3, 160, 160)),
        ("efficientnet_lite1", (1, 3, 240, 240)),
    ],
)
def test_a_model_gets_images_of_its_size(name, shape):
    model = load(f"timm:{name}", weights=False)
    assert model.args[0].shape == shape
    assert not model.module.training
    with torch.no_grad():
        output = model.module(*model.args)
    assert output.shape == (1, model.module.num_classes)
    assert output.std() > 0


def test_all_architectures_are_listed():
    assert {"resnet18", "vit_base_patch16_224"} <= set(names("timm"))


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ZooError, match="timm has no model 'resnet81': did you mean 'resnet18'"):
        load("timm:resnet81")


def test_an_unknown_tag_lists_the_nearest():
    with pytest.raises(
        ZooError, match=r"timm has no weights 'a1_in2k' for resnet18: did you mean 'resnet18\.a1_in1k'"
    ):
        load("timm:resnet18.a1_in2k")


def test_weights_that_cannot_be_fetched_are_not_made_up(monkeypatch):
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    with pytest.raises(ZooError) as caught:
        load("timm:test_vit")
    assert str(caught.value).startswith("the weights of timm:test_vit cannot be fetched (")
    assert "--no-weights" in str(caught.value)


def refuse(*_, **__):
    raise ConnectionRefusedError("no network")
