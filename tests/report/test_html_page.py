"""The HTML report: one file that loads nothing, and whose data match the records."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from torchport.records import Profile, ProfiledOp, write_record
from torchport.report import page_graph, read_report, render_html
from torchport.report.html_page import _bundled

from .pages import blocks_of, data_of
from .records_at_hand import accuracy, analysis, bench, coverage, failed, graph, stayed, tries, write

REPOSITORY = Path(__file__).parents[2]


class Tags(HTMLParser):
    """Collects the tags of a page; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(tmp_path, *records, **options):
    return render_html(read_report(write(tmp_path, *records)), **options)


def test_the_cells_are_those_of_the_markdown_table(tmp_path):
    data = data_of(page(tmp_path, bench()))
    assert [column["title"] for column in data["columns"]][:3] == ["Model", "Target", "Status"]
    assert [text for text, _ in data["rows"][0]["cells"]] == [
        "torchvision:resnet18", "openvino", "✅", "4", "70 (12)", "3 (2)", "2", "30.00", "12.00", "2.50x",
        "1500.00", "1.000000",
    ]  # fmt: skip


def test_cells_carry_the_number_they_are_sorted_by(tmp_path):
    data = data_of(page(tmp_path, bench(), failed()))
    assert [row["cells"][7][1] for row in data["rows"]] == [None, 0.03]


def test_what_auto_tried_is_there_with_the_numbers_it_is_sorted_by(tmp_path):
    data = data_of(page(tmp_path, bench(target="auto", tries=tries()), bench(target="openvino")))
    [found] = data["tries"]
    assert (found["model"], found["chosen"], found["objective"]) == (
        "torchvision:resnet18",
        "swift",
        "latency",
    )
    assert [column["title"] for column in found["columns"]][:3] == ["Engine", "Status", "Time (ms)"]
    assert [row[0][0] for row in found["rows"]] == ["eager", "swift", "broken"]
    assert found["rows"][1][2:4] == [["5.00", 0.005], ["0.25x", 0.25]]
    assert found["rows"][2][2] == ["-", None]


def test_nothing_is_loaded_and_no_other_script_runs(tmp_path):
    text = page(tmp_path, bench(), coverage("torchvision:resnet18", stayed()), graph())
    found = Tags(text).tags
    assert {tag for tag, _ in found} == {
        "html", "head", "meta", "title", "style", "body", "div", "noscript", "p", "script"
    }  # fmt: skip
    assert not [name for _, attributes in found for name in attributes if name in ("src", "href")]
    policy = next(tag["content"] for _, tag in found if "http-equiv" in tag)
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data: blob:"
    )


def test_a_text_of_a_record_is_nowhere_in_the_markup(tmp_path):
    nasty = '</script><script>alert("x")</script>'
    op = stayed(detail=nasty, module_path=nasty)
    text = page(tmp_path, bench(nasty), failed(nasty + "2", error=nasty), coverage(nasty, op), title=nasty)
    assert "alert(" not in re.sub(r"<title>.*</title>", "", text)
    assert "<title>&lt;/script&gt;&lt;script&gt;" in text
    assert data_of(text)["rows"][0]["model"] == nasty


def test_numbers_that_json_has_no_form_for_are_texts(tmp_path):
    data = data_of(page(tmp_path, bench(pcc=float("nan"), max_absolute=float("inf"), status="inaccurate")))
    assert data["rows"][0]["cells"][11] == ["nan", "nan"]


def test_stayed_ops_are_grouped_with_their_cost_and_their_first_node(tmp_path):
    ops = [stayed(module_path=f"encoder.layer.{i}", node=f"cumsum_{i}") for i in range(60)]
    [found] = data_of(page(tmp_path, bench(), coverage("torchvision:resnet18", *ops)))["coverages"]
    [group] = found["groups"]
    assert (group["op"], group["count"], group["flops"], group["node"]) == (
        "aten.cumsum.default", 60, 300, "cumsum_0",
    )  # fmt: skip
    assert (len(group["places"]), group["more"]) == (50, 10)
    assert (found["ops"], found["flops"], found["bytes"]) == ([10, 70], [900, 1000], [100, 400])


def test_a_bad_file_is_named(tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "cut.json").write_text("{")
    [[path, detail]] = data_of(page(tmp_path, bench()))["problems"]
    assert path.endswith("cut.json")
    assert detail.startswith("is not valid JSON")


def test_the_ground_is_named_once(tmp_path):
    data = data_of(page(tmp_path, bench("a"), bench("b")))
    assert data["grounds"] == ["torch 2.13.0 · processor: Some CPU"]


def test_a_graph_is_a_block_of_its_own(tmp_path):
    blocks = blocks_of(page(tmp_path, bench(), graph()))
    [entry] = blocks[0]["graphs"]
    assert (entry["model"], entry["target"], entry["view"], entry["ops"]) == (
        "torchvision:resnet18", "openvino", "aten", 3,
    )  # fmt: skip
    found = blocks[entry["block"]]
    assert found["names"] == ["conv", "cumsum", "add"]
    assert found["sources"] == [[], [0], [0, 1]]
    assert [found["modules"][place][0] for place in found["module"]] == ["layer.0", "layer.0", ""]
    assert found["kinds"][found["kind"][0]] == [
        "aten.convolution.default", [["stride", "[2, 2]"]], [["input", "float32[1x3x8x8]"]],
        ["float32[1x4x4x4]"], 100, 50,
    ]  # fmt: skip
    assert [found["verdicts"][place][0] for place in found["verdict"] if place >= 0] == ["no_lowering"]
    assert found["island"] == [0, -1, 0]


def test_an_analysis_is_a_graph_too_as_the_model_is_written(tmp_path):
    analysis().save(tmp_path / "net")
    blocks = blocks_of(page(tmp_path))
    [entry] = blocks[0]["graphs"]
    assert (entry["model"], entry["view"]) == ("net.py:load", "written")
    found = blocks[entry["block"]]
    assert found["names"] == ["linear", "relu", "linear"]
    assert found["sources"] == [[], [0], [1]]
    assert found["modules"] == [["", "Net"], ["a", "Linear"], ["b", "Linear"]]
    assert found["measures"] == {"memory": [16, 16, 16]}
    assert [found["kinds"][place][4] for place in found["kind"]] == [32, 4, 32]


def test_an_analysis_with_missing_entries_is_still_shown():
    told = analysis()
    without_ops = type(told)(told.model, told.modules, type(told.ops)(told.ops.metadata, ()), told.cost)
    found = page_graph.graph_as_written(without_ops)
    assert [found["kinds"][place][0] for place in found["kind"]] == ["op_000", "op_001", "op_000"]


def test_the_tables_and_charts_of_an_analysis(tmp_path):
    analysis().save(tmp_path / "net")
    blocks = blocks_of(page(tmp_path))
    found = blocks[blocks[0]["analyses"][0]["block"]]
    assert (found["parameters"], found["flops"], found["vector"]) == (40, 64, 4)
    assert [row["path"] for row in found["modules"]] == ["(root)", "a", "b"]
    assert [(row["op"], row["count"], row["flops"]) for row in found["uniqueOps"]] == [
        ("torch.nn.functional.linear", 2, 64), ("torch.relu", 1, 4),
    ]  # fmt: skip
    assert found["timeline"] == [[0, 16], [1, 32], [2, 16]]


def test_a_long_timeline_keeps_its_peak(tmp_path):
    timeline = [step % 7 for step in range(100_000)]
    timeline[77_777] = 1000
    analysis(timeline=tuple(timeline)).save(tmp_path / "net")
    blocks = blocks_of(page(tmp_path))
    found = blocks[blocks[0]["analyses"][0]["block"]]["timeline"]
    assert len(found) <= 2000
    assert [77_777, 1000] in found


def test_outputs_that_are_off(tmp_path):
    [found] = data_of(page(tmp_path, bench(), accuracy()))["accuracies"]
    assert [(row["path"], row["pcc"]) for row in found["outputs"]] == [("logits", "NaN")]
    assert found["histograms"] == [{"path": "logits", "zero": 3, "decades": [0, 1], "not_finite": 2}]


def test_a_baseline_adds_its_graphs_and_what_changed(tmp_path):
    before = read_report(write(tmp_path / "before", bench(ops_remain=9), graph()))
    data = data_of(page(tmp_path / "now", bench(ops_remain=3), graph(), baseline=before))
    assert [entry["run"] for entry in data["graphs"]] == ["", "baseline"]
    assert [(row["what"], row["before"], row["now"], row["kind"]) for row in data["changes"]] == [
        ("Torch Ops Remain", "9", "3", "better")
    ]
    assert data_of(page(tmp_path / "now"))["changes"] is None


def test_the_bundle_is_built_from_these_sources():
    """`npm ci && npm run build` in report-ui regenerates it."""
    folder = REPOSITORY / "report-ui"
    names = [path.relative_to(folder).as_posix() for path in (folder / "src").rglob("*") if path.is_file()]
    names += ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (folder / name).read_bytes() + b"\0")
    assert _bundled("page.js").startswith(f"/* sources: sha256 {digest.hexdigest()} */")


def test_the_bundle_names_the_licences_of_what_it_holds():
    text = (REPOSITORY / "src/torchport/report/page/LICENSES.txt").read_text()
    for package in ("preact", "@observablehq/plot", "@dagrejs/dagre", "d3-hierarchy"):
        assert f"\n{package} " in text


def test_non_finite_times_do_not_break_the_page(tmp_path):
    write(tmp_path, graph())
    op = ProfiledOp("", "conv", (), "", "", "host", float("nan"), "", "", False, 0, 0, 0.0)
    profile = Profile(
        "torchvision:resnet18", "openvino", 1.0, (op, replace(op, node="add", seconds=1e308)), 1, 1
    )
    write_record(profile, tmp_path / "profile.json")
    [_, shown] = blocks_of(render_html(read_report(tmp_path)))
    assert shown["measures"] == {"Milliseconds": [0.0, 0.0, 0.0]}
