"""torchvision's models by name."""

import pytest
import torch

from torchport.errors import ZooError
from torchport.zoo import load, names, network


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("squeezenet1_1", (1, 3, 224, 224)),
        ("efficientnet_b1", (1, 3, 240, 240)),
        ("quantized_shufflenet_v2_x0_5", (1, 3, 224, 224)),
    ],
)
def test_a_classifier_gets_images_of_its_size(name, shape):
    model = load(f"torchvision:{name}", weights=False)
    assert model.args[0].shape == shape
    assert not model.module.training
    output = model.module(*model.args)
    assert output.shape == (1, 1000)
    assert output.std() > 0


def test_a_vision_transformer_has_its_own_size_and_a_head_that_is_not_zero():
    model = load("torchvision:vit_b_32", weights=False, batch=2)
    assert model.args[0].shape == (2, 3, 224, 224)
    with torch.no_grad():
        output = model.module(*model.args)
    assert output.shape == (2, 1000)
    assert output.std() > 0.01  # torchvision initializes this head with zeros


def test_the_same_name_gives_the_same_model():
    first, second = (load("torchvision:squeezenet1_1", weights=False) for _ in range(2))
    assert torch.equal(
        first.module.state_dict()["features.0.weight"], second.module.state_dict()["features.0.weight"]
    )
    assert torch.equal(first.args[0], second.args[0])


def test_segmentation_keeps_the_images_size():
    model = load("torchvision:lraspp_mobilenet_v3_large", weights=False)
    assert model.module(*model.args)["out"].shape == (1, 21, 224, 224)


def test_detection_takes_a_list_of_images_and_runs():
    model = load("torchvision:ssdlite320_mobilenet_v3_large", weights=False, batch=2)
    images = model.args[0]
    assert [image.shape for image in images] == [(3, 224, 224)] * 2
    with torch.no_grad():
        found = model.module(*model.args)
    assert [set(one) for one in found] == [{"boxes", "scores", "labels"}] * 2


@pytest.mark.parametrize(("name", "shape"), [("s3d", (1, 3, 16, 224, 224)), ("r3d_18", (1, 3, 16, 112, 112))])
def test_video_takes_clips(name, shape):
    assert load(f"torchvision:{name}", weights=False).args[0].shape == shape


@pytest.mark.parametrize("name", ["resnet152", "regnet_x_400mf"])  # the second reads values while it is built
def test_a_model_without_values_takes_no_memory_and_knows_its_shapes(name):
    model = load(f"torchvision:{name}", weights=False, device="meta")
    assert all(parameter.is_meta for parameter in model.module.parameters())
    assert model.module(*model.args).shape == (1, 1000)


def test_all_names_are_listed():
    assert {"resnet18", "vit_b_16", "fasterrcnn_resnet50_fpn", "quantized_resnet18", "s3d"} <= set(
        names("torchvision")
    )


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ZooError, match="torchvision has no model 'resnet81': did you mean 'resnet18'"):
        load("torchvision:resnet81")


def test_weights_that_cannot_be_fetched_are_not_made_up(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    with pytest.raises(ZooError) as caught:
        load("torchvision:resnet18")
    text = str(caught.value)
    assert text.startswith("the weights of torchvision:resnet18 cannot be fetched (")
    assert "--no-weights" in text


def refuse(*_, **__):
    raise ConnectionRefusedError("no network")
