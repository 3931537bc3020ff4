"""docs/ttnn.md shows the options and figures that there are."""

import re

import pytest

from docs.markdown import sections
from torchport import targets
from torchport.targets.ttnn import estimate


@pytest.fixture
def document(root) -> dict[str, str]:
    return sections(root / "docs" / "ttnn.md")


def test_options_are_those_of_the_target_with_their_defaults(document):
    defaults = vars(targets.find("ttnn").make_options({}))
    shown = re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", document["Options"], re.M)
    words = {True: "on", False: "off", (): "none"}
    expected = {
        name: words[value] if isinstance(value, (bool, tuple)) else str(value)
        for name, value in defaults.items()
    }
    assert dict(shown) == expected


def test_the_figures_are_those_of_the_estimate(document):
    text = " ".join(document["Time"].split())
    for figure in (
        f"{estimate.LAUNCH * 1e6:g} µs to launch",
        f"{estimate.COMPUTE_SHARE * 100:g} % of {estimate.FLOPS['HiFi4'] / 1e12:g} TFLOPS",
        f"{estimate.MEMORY_SHARE * 100:g} % of {estimate.MEMORY / 1e9:g} GB/s",
        f"{estimate.TRANSFER * 1e6:g} µs and its bytes at {estimate.BUS / 1e9:g} GB/s",
    ):
        assert figure in text, figure
    assert estimate.FLOAT32_SHARE == 0.25  # "a quarter in float32"
