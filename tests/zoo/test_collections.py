"""The models of a library that a survey covers."""

import pytest

from torchport.errors import ZooError
from torchport.zoo import list_zoo


def test_torchvision_has_its_classification_segmentation_and_video_models():
    names = list_zoo("torchvision")
    assert len(list_zoo("torchvision:classification")) == 80
    assert names[0] == "torchvision:alexnet"
    assert {"torchvision:fcn_resnet50", "torchvision:r3d_18"} <= set(names)
    assert not [name for name in names if "quantized" in name or "rcnn" in name or "raft" in name]
    assert (
        len(names)
        == len(set(names))
        == sum(len(list_zoo(f"torchvision:{kind}")) for kind in ("classification", "segmentation", "video"))
    )


def test_a_pattern_chooses():
    assert list_zoo("torchvision", "squeezenet*") == [
        "torchvision:squeezenet1_0",
        "torchvision:squeezenet1_1",
    ]
    assert "timm:vit_tiny_patch16_224" in list_zoo("timm", "vit_tiny*")
    assert list_zoo("transformers", "gpt2") == ["hf-small:gpt2"]


@pytest.mark.parametrize(
    ("name", "pattern", "message"),
    [
        ("torchvison", "*", "did you mean 'torchvision'"),
        ("timm:video", "*", "unknown zoo 'timm:video'"),
        ("torchvision", "nothing*", "no model of torchvision matches"),
    ],
)
def test_what_there_is_not_is_refused(name, pattern, message):
    with pytest.raises(ZooError, match=message):
        list_zoo(name, pattern)
