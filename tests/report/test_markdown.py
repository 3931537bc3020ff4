"""The results table in Markdown."""

from torchport.records import Fallbacks
from torchport.report import read_report, render_markdown

from .records_at_hand import analysis, bench, failed, tries, write

HEADINGS = [
    "Model", "Target", "Status", "Batch", "Torch Ops Before (Unique)", "Torch Ops Remain (Unique)",
    "To/From Device Ops", "Original Run Time (ms)", "Compiled Run Time (ms)", "Speed-up", "First Run (ms)",
    "Accuracy (PCC)",
]  # fmt: skip


def lines(tmp_path, *records):
    return render_markdown(read_report(write(tmp_path, *records))).splitlines()


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_row_says_it_all(tmp_path):
    head, rule, row = lines(tmp_path, bench())
    assert cells(head) == HEADINGS
    assert set(rule) == set("|-: ")
    assert cells(row) == [
        "torchvision:resnet18", "openvino", "✅", "4", "70 (12)", "3 (2)", "2", "30.00", "12.00", "2.50x",
        "1500.00", "1.000000",
    ]  # fmt: skip


def test_a_failure_has_a_cross_and_its_reason_below(tmp_path):
    out = lines(tmp_path, bench(), failed(error="export: no\n  such | <op>"))
    assert cells(out[2])[:5] == ["hf:broken", "openvino", "❌", "-", "-"]
    assert out[4:] == ["", "- ❌ hf:broken on openvino: export: no such \\| \\<op>"]


def test_an_inaccurate_row_has_a_cross(tmp_path):
    out = lines(tmp_path, bench(status="inaccurate", pcc=0.5, pcc_threshold=0.99))
    assert cells(out[2])[2] == "❌"
    assert cells(out[2])[-1] == "0.500000"
    assert out[-1].endswith("the PCC is 0.500000, which is below 0.99")


def test_columns_align_in_a_terminal(tmp_path):
    out = lines(tmp_path, bench("a"), bench("a-much-longer/name.py::load"), bench("模型"))
    # The mark is two columns wide, and so is each Chinese character.
    widths = {sum(2 if sign in "✅❌模型" else 1 for sign in line) for line in out}
    assert len(widths) == 1


def test_a_bar_in_a_name_does_not_end_its_cell(tmp_path):
    assert "a\\|b" in lines(tmp_path, bench("a|b"))[2]


def test_a_simulated_run_is_labelled_so_and_its_time_an_estimate(tmp_path):
    [row] = lines(tmp_path, bench(target="ttnn", simulated=True))[2:]
    assert cells(row)[1] == "ttnn (simulated)"
    assert cells(row)[7:10] == ["30.00", "12.00 (estimate)", "-"]  # no speed-up was measured


def test_calls_that_eager_torch_ran_have_a_column_if_there_were_any(tmp_path):
    none = bench(fallbacks=Fallbacks(20, 0))
    assert cells(lines(tmp_path / "none", none)[0]) == HEADINGS
    some = bench("hf:some", fallbacks=Fallbacks(20, 3, "an output holds NaN"))
    head, _, *rows = lines(tmp_path / "some", none, some, failed())
    assert cells(head) == [*HEADINGS, "Calls Run by Torch"]
    assert sorted(cells(row)[-1] for row in rows if row.startswith("|")) == ["-", "0 of 20", "3 of 20"]


def test_analyses_have_a_table_of_their_own(tmp_path):
    analysis().save(tmp_path / "net")
    head, _, row = render_markdown(read_report(tmp_path)).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")][:3] == ["Model", "Parameters", "FLOPs"]
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["net.py:load", "40", "68", "224", "32"]


def test_what_auto_tried_stands_below_the_table(tmp_path):
    out = lines(tmp_path, bench(target="auto", tries=tries()))
    assert cells(out[2])[1] == "auto (swift)"
    assert out[3:5] == ["", "torchvision:resnet18: auto chose swift by latency"]
    assert cells(out[9]) == ["swift", "ok", "5.00", "0.25x", "0.999900", "2.2", "3", "2", ""]
    assert cells(out[10])[:3] == ["broken", "crashed", "-"]
    assert "its process \\| ended" in out[10]
