"""What the documents of the four tools show runs, block by block, and leaves what they promise.

Each function below is one block of a document, in the form that it intends and at a size that suits a test.
"""

import csv
import importlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from compat.commands import run_here
from torchport_compat.tools.collect_metrics import collect_metrics
from torchport_compat.tools.generate_report import generate_report
from torchport_compat.tools.model_analysis import model_analysis
from torchport_compat.tools.run_transformers import run_transformers
from torchport_compat.tools.stat_torchvision import stat_torchvision

ROOT = Path(__file__).parents[2]

# How many blocks each document has.
BLOCKS = {
    "000_torch_ttnn_tracer": 3,
    "001_torch_ttnn_results": 4,
    "002_torch_neuron_trace": 4,
    "003_tinynn_graph_tracer": 1,
    "004_tt_model_analysis": 9,
}

_blocks: dict[str, list[Callable[[], None]]] = {}


def block(document: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function as the next block of a document."""

    def note(function: Callable[[], None]) -> Callable[[], None]:
        _blocks.setdefault(document, []).append(function)
        return function

    return note


def shell(command: str) -> str:
    """Run a command as a shell does, and return what it prints."""
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.usefixtures("forked_python")  # for calls made here; a shell starts its own processes
@pytest.mark.parametrize("document", list(BLOCKS))
def test_every_block_runs_in_order(document, tools):
    Path("small.py").write_text("import torch\n\ndef image():\n    return torch.rand(1, 3, 64, 64)\n")
    for run in _blocks[document]:
        run()


def test_every_block_is_covered():
    assert Counter({document: len(found) for document, found in _blocks.items()}) == Counter(BLOCKS)
    for folder in (parent / "shared" / "seeds" for parent in ROOT.parents):  # beside a checkout, if at all
        for document in folder.glob("*.md"):
            assert len(re.findall(r"^```", document.read_text(), re.M)) == 2 * BLOCKS[document.stem]


# torch_ttnn: the tracer


def check_backend() -> None:
    import torch_ttnn

    class FooModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(32, 16)

        def forward(self, x):
            return torch.relu(self.linear(x))

    module = FooModule().eval()
    input_data = torch.rand(4, 32)
    with torch.no_grad():
        ttnn_module = torch.compile(module, backend=torch_ttnn.backend)
        result, expected = ttnn_module(input_data), module(input_data)
    assert torchport.compare(result, expected).pcc > 0.999
    assert not torch.equal(result, expected)  # the chip's bfloat16, not eager torch's float32


@block("000_torch_ttnn_tracer")
def a_model_runs_on_the_backend() -> None:
    check_backend()


@block("000_torch_ttnn_tracer")
def the_ops_of_torchvision_are_recorded() -> None:
    # As the script of torch_ttnn_results, which is run by a shell; here without the start of a process.
    assert run_here(stat_torchvision, "--model squeezenet1_1 --inputs small.py::image").code == 0
    [file] = shell("ls stat/raw").split()
    assert "squeezenet1_1" in file


@block("000_torch_ttnn_tracer")
def a_report_is_generated() -> None:
    listed = shell("python3 tools/generate_report.py > /dev/null\nls stat/").split()
    assert {"node_count.csv", "total_input_size_dist", "total_arguments"} <= set(listed)

    from torchvision.models import squeezenet1_1

    convolutions = [module for module in squeezenet1_1().modules() if isinstance(module, nn.Conv2d)]
    assert ["aten.convolution.default", str(len(convolutions))] in table("stat/node_count.csv")
    header, *sizes = table("stat/total_input_size_dist/aten.convolution.default.csv")
    assert header == ["bytes", "count"]
    assert sum(int(count) for _, count in sizes) == len(convolutions)
    arguments = {row[0]: row[1:] for row in table("stat/total_arguments/aten.convolution.default.csv")}
    assert arguments["arg0's appeared value"] == ["not_jsonable"]
    assert arguments["arg0's appeared value's count"] == [str(len(convolutions))]
    strides = Counter(json.dumps(list(module.stride)) for module in convolutions)
    assert arguments["arg3's appeared value"] == sorted(strides)
    assert arguments["arg3's appeared value's count"] == [str(strides[key]) for key in sorted(strides)]


def table(path: str) -> list[list[str]]:
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))


# torch_ttnn: the results


@block("001_torch_ttnn_results")
def a_model_runs_on_the_backend_again() -> None:
    check_backend()


@block("001_torch_ttnn_results")
def the_ops_of_both_directions_are_recorded() -> None:
    listed = shell(
        "PYTHONPATH=$(pwd) python3 tools/run_torchvision.py --backend torch_stat --backward --profile"
        " --model squeezenet1_1 --inputs small.py::image > /dev/null\nls stat/raw"
    )
    assert len(listed.split()) == 1


@block("001_torch_ttnn_results")
def a_report_of_both_directions_is_generated() -> None:
    assert run_here(generate_report).code == 0  # by a shell above, as `python3 tools/generate_report.py`
    listed = set(names_in("stat"))
    for direction in ("fw", "bw"):
        assert {
            f"{direction}_node_count.csv",
            f"{direction}_total_input_size_dist",
            f"{direction}_total_output_size_dist",
        } <= listed
        header, *counts = table(f"stat/{direction}_node_count.csv")
        assert header == ["op", "count"]
        for op, count in counts:
            for side in ("input", "output"):
                path = Path(f"stat/{direction}_total_{side}_size_dist/{op}.csv")
                if path.is_file():  # an op without input or output tensors has none
                    assert sum(int(row[1]) for row in table(str(path))[1:]) == int(count)
                    assert path.with_suffix(".svg").is_file()
                    assert path.with_suffix(".png").is_file()
    assert "node_count.csv" not in listed  # forward or backward would be ambiguous
    [profile] = Path("stat/profile").iterdir()
    events = json.loads(profile.read_text())["traceEvents"]
    assert "aten::convolution" in {event.get("name") for event in events}


@block("001_torch_ttnn_results")
def a_transformer_runs_and_the_readme_is_filled() -> None:
    # By a shell: PYTHONPATH=${TT_METAL_HOME}:$(pwd) python3 tools/run_transformers.py …
    done = run_here(run_transformers, "--model hf-small:bert --backend torch_ttnn --no-weights")
    assert done.code == 0, done.out
    Path("docs").mkdir()
    Path("docs/README.md.in").write_text("# Results\n<!-- results: begin -->\n<!-- results: end -->\nEnd.\n")
    assert run_here(collect_metrics).code == 0  # by a shell: python3 tools/collect_metrics.py
    readme = Path("README.md").read_text()
    assert readme.startswith("[comment]: <> (")
    assert readme.endswith("End.\n")
    header, _, row = [line.strip("|").split("|") for line in readme.splitlines() if line.startswith("|")]
    found = dict(zip(map(str.strip, header), map(str.strip, row), strict=True))
    assert list(found) == [
        "Model", "Run Success", "Torch Ops (Before)", "Torch Ops (Remain)", "To/From_Device Ops",
        "Original Run Time (s)", "Compiled Run Time(s)", "Accuracy",
    ]  # fmt: skip
    assert (found["Model"], found["Run Success"]) == ("hf-small:bert", "Yes")
    assert int(found["Torch Ops (Before)"]) > int(found["Torch Ops (Remain)"]) == 0
    assert 0.99 < float(found["Accuracy"]) <= 1
    assert float(found["Original Run Time (s)"]) > 0


# PyTorch-Neuron


@block("002_torch_neuron_trace")
def a_trace_is_made() -> None:
    import torch_neuron  # noqa: F401

    model, example_inputs, compiler_args = nn.ReLU().eval(), torch.rand(1, 4), ["--keep-ops", "aten.relu"]
    traced = torch.neuron.trace(model, example_inputs, compiler_args)
    assert isinstance(traced, torch.jit.ScriptModule)
    [stayed] = json.loads(traced.torchport_report)["coverage"]["stayed"]
    assert stayed["reason"] == "kept_by_option"


@block("002_torch_neuron_trace")
def a_function_is_traced() -> None:
    import torch_neuron  # noqa: F401

    def foo(x, y):
        return 2 * x + y

    x, y = torch.rand(3), torch.rand(3)
    traced_foo = torch.neuron.trace(foo, (x, y))
    assert isinstance(traced_foo, torch.jit.ScriptFunction)
    torch.testing.assert_close(traced_foo(x, y), foo(x, y))


@block("002_torch_neuron_trace")
def a_module_and_its_forward_are_traced() -> None:
    import torch.nn as nn

    import torch_neuron  # noqa: F401

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3)

        def forward(self, x):
            return self.conv(x)

    n = Net()
    n.eval()
    example_forward_input = torch.rand(1, 1, 3, 3)
    for traced in (
        torch.neuron.trace(n.forward, example_forward_input),
        torch.neuron.trace(n, example_forward_input),
    ):
        assert isinstance(traced, torch.jit.ScriptModule)
        torch.testing.assert_close(traced(example_forward_input), n(example_forward_input))


@block("002_torch_neuron_trace")
def a_resnet_is_saved() -> None:
    from torchvision import models

    import torch_neuron  # noqa: F401

    image = torch.rand(1, 3, 64, 64)
    model = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], width_per_group=8)  # a short resnet50
    model.eval()
    model_neuron = torch.neuron.trace(model, example_inputs=[image])
    model_neuron.save("resnet50_neuron.pt")
    with torch.no_grad():
        loaded, expected = torch.jit.load("resnet50_neuron.pt")(image), model(image)
    assert torchport.compare(loaded, expected).ok


# TinyNeuralNetwork


@block("003_tinynn_graph_tracer")
def alexnet_is_written_as_code() -> None:
    import torchvision

    from tinynn.graph.tracer import model_tracer, trace

    with model_tracer():
        model = torchvision.models.alexnet()
        model.eval()
        dummy_input = torch.rand((1, 3, 224, 224))
        graph = trace(model, dummy_input)
        graph.generate_code("my_alexnet.py", "my_alexnet.pth", "Alexnet")

    written = importlib.import_module("my_alexnet").Alexnet().eval()
    written.load_state_dict(torch.load("my_alexnet.pth"))
    with torch.no_grad():
        assert torch.equal(written(dummy_input), model(dummy_input))


# tt-model-analysis

MY_MODEL = '''
import torch
import torch.nn as nn

def load_model():
    """The model."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    )
    return model

def get_inputs():
    """Its input."""
    return torch.randn(1, 3, 224, 224)
'''


@block("004_tt_model_analysis")
def the_command_is_installed() -> None:
    # `pip install -e .` itself is run by test_installation.py.
    assert "--model-path" in shell("tt-model-analysis --help")


@block("004_tt_model_analysis")
def the_command_takes_a_folder() -> None:
    Path("path/to").mkdir(parents=True)
    Path("path/to/file.py").write_text(MY_MODEL.replace("224, 224", "8, 8"))
    arguments = (
        "--model-path path/to/file.py::load_model --inputs-path path/to/file.py::get_inputs"
        " --dir output_directory"
    )
    assert run_here(model_analysis, arguments).code == 0
    assert {"unique_modules.json", "pytorch_ops.json"} <= names_in("output_directory")


@block("004_tt_model_analysis")
def a_file_is_written() -> None:
    Path("my_model.py").write_text(MY_MODEL)


@block("004_tt_model_analysis")
def the_file_is_analysed() -> None:
    # As the installed command, which the first block starts; here without the start of a process.
    arguments = "--model-path my_model.py::load_model --inputs-path my_model.py::get_inputs"
    assert run_here(model_analysis, arguments).code == 0


@block("004_tt_model_analysis")
def the_output_is_in_a_folder_of_the_class() -> None:
    assert {"unique_modules.json", "pytorch_ops.json"} <= names_in("Sequential")


def names_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


@block("004_tt_model_analysis")
def the_functions_do_the_same() -> None:
    from model_analysis import extract_pytorch_ops, extract_unique_modules

    def load_model():
        return nn.Sequential(
            nn.Linear(10, 20),
            nn.ReLU(),
            nn.Linear(20, 10),
        )

    def get_inputs():
        return torch.randn(1, 10)

    modules = extract_unique_modules(
        load_fn=load_model, get_sample_input=get_inputs, output_path="unique_modules.json"
    )
    ops = extract_pytorch_ops(
        modules_json_path="unique_modules.json",
        load_fn=load_model,
        get_sample_input=get_inputs,
        output_path="pytorch_ops.json",
    )
    assert [module.class_name for module in modules] == ["Sequential", "Linear", "ReLU", "Linear"]
    assert len(json.loads(Path("pytorch_ops.json").read_text())["ops"]) == len(ops)


@block("004_tt_model_analysis")
def unique_modules_have_their_keys() -> None:
    document = json.loads(Path("Sequential/unique_modules.json").read_text())
    metadata = document["metadata"]
    assert metadata["load_fn_location"] == "my_model.py:load_model"
    assert (metadata["load_fn_name"], metadata["model_class"]) == ("load_model", "Sequential")
    assert metadata["timestamp"]
    # The two norms are identical, and so are the two activations; the convolutions and the model are not.
    assert (metadata["total_modules"], metadata["unique_modules"]) == (7, 5)
    root, convolution = document["modules"][:2]
    common = {
        "input_shapes": ["1x3x224x224"],
        "output_shapes": ["1x64x224x224"],
        "input_dtypes": ["float32"],
        "output_dtypes": ["float32"],
    }
    assert_holds(
        root,
        common | {
            "id": "mod_000",
            "class_name": "Sequential",
            "module_path": "(root)",
            "parent": None,
            "parameters": {},
            "occurrences": ["(root)"],
        },
    )  # fmt: skip
    assert_holds(
        convolution,
        common
        | {
            "id": "mod_001",
            "class_name": "Conv2d",
            "module_path": "0",
            "parent": "(root)",
            "occurrences": ["0"],
        },
    )
    assert_holds(
        convolution["parameters"],
        {"in_channels": 3, "out_channels": 64, "kernel_size": [3, 3], "stride": [1, 1], "padding": [1, 1]},
    )


@block("004_tt_model_analysis")
def pytorch_ops_have_their_keys() -> None:
    document = json.loads(Path("Sequential/pytorch_ops.json").read_text())
    metadata = document["metadata"]
    assert metadata["source_modules_json"] == "unique_modules.json"
    assert {"total_ops", "unique_ops", "timestamp"} <= set(metadata)
    assert len(document["ops"]) == metadata["unique_ops"]
    convolution = document["ops"][0]
    assert_holds(
        convolution,
        {
            "id": "op_000",
            "op_name": "torch.conv2d",
            "source_module_id": "mod_001",
            "source_module_class": "Conv2d",
        },
    )
    assert_holds(
        convolution["attributes"], {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    )
    assert_holds(convolution["tensor_types"]["output"], {"shape": "1x64x224x224", "dtype": "float32"})
    assert_holds(convolution["occurrences"][0], {"source_module_id": "mod_001", "node_name": "conv2d"})


def assert_holds(found: dict[str, object], expected: dict[str, object]) -> None:
    assert {key: found.get(key, "absent") for key in expected} == expected


@block("004_tt_model_analysis")
def the_modules_of_the_package_are_there() -> None:
    from model_analysis.types import ModuleInfo, OpInfo

    for name in ("cli", "types", "shapes", "module_extractor", "ops_extractor", "tracer"):
        importlib.import_module(f"model_analysis.{name}")
    assert {"class_name", "module_path"} <= set(ModuleInfo.__dataclass_fields__)
    assert {"op_name", "attributes"} <= set(OpInfo.__dataclass_fields__)
