"""A survey in Markdown and HTML, alone and together with results of bench."""

import pytest

from torchport.report import Report, read_report, render_html, render_markdown
from torchport.report.survey.markdown import summarise

from ..pages import data_of
from ..records_at_hand import bench, write
from .surveys_at_hand import Op, convolution, relu, write_model, write_raw, write_row


@pytest.fixture
def stat(tmp_path):
    directory = tmp_path / "stat"
    write_model(directory, "a", convolution(flops=75), relu(flops=25), relu(), relu(direction="bw"))
    write_model(directory, "b", relu())
    write_row(directory, "c|<d>", None, status="raised", error="no <such> thing")
    return directory


def test_markdown_has_the_summary_the_ops_and_the_failures(stat):
    assert render_markdown(read_report(stat)).splitlines() == [
        "2 of 3 models ok, 4 ops forward (2 unique), 1 ops backward (1 unique)",
        "",
        "| Op                       | Forward | In Models | Backward | In Models | FLOPs |",
        "| ------------------------ | ------: | --------: | -------: | --------: | ----: |",
        "| aten.relu.default        |       3 |         2 |        1 |         1 | 25.0% |",
        "| aten.convolution.default |       1 |         1 |        - |         - | 75.0% |",
        "",
        "- ❌ c\\|\\<d>: raised: no \\<such> thing",
    ]


def test_markdown_shows_twenty_ops_and_says_how_many_more_there_are(tmp_path):
    write_raw(tmp_path, "m", *[Op(f"aten.op{place}.default") for place in range(23)])
    text = render_markdown(read_report(tmp_path))
    assert sum(line.startswith("| aten.") for line in text.splitlines()) == 20
    assert "and 3 more ops" in text


def test_a_survey_stands_below_the_results_of_bench(stat):
    write(stat, bench())
    text = render_markdown(read_report(stat))
    assert text.startswith("| Model ")
    assert text.index("2.50x") < text.index("2 of 3 models ok")
    data = data_of(render_html(read_report(stat)))
    assert len(data["rows"]) == 1
    assert len(data["survey"]["models"]) == 3


def test_html_has_a_row_for_each_op_and_each_model(stat):
    survey = data_of(render_html(read_report(stat)))["survey"]
    assert survey["ops"] == [
        {"op": "aten.relu.default", "forward": [3, 2], "backward": [1, 1], "flops": 25},
        {"op": "aten.convolution.default", "forward": [1, 1], "backward": None, "flops": 75},
    ]
    rows = [(row["model"], row["status"], row["forward"], row["error"]) for row in survey["models"]]
    assert rows == [
        ("a", "ok", [3, 2], ""), ("b", "ok", [1, 1], ""),
        ("c|<d>", "raised", [None, None], "no <such> thing"),
    ]  # fmt: skip


def test_html_has_sizes_arguments_and_which_model_uses_which_op(stat):
    survey = data_of(render_html(read_report(stat)))["survey"]
    # 1x4x8x8 elements of 4 bytes are 2**10 bytes, whose bit length is 11.
    assert survey["sizes"]["aten.relu.default"] == {"input": [[11, 4]], "output": [[11, 4]]}
    assert survey["arguments"]["aten.convolution.default"]["arg3"] == [["[1, 1]", 1]]
    assert sorted(survey["usage"]) == [[0, 0, 3], [0, 1, 1], [1, 0, 1]]


def test_many_values_of_an_argument_are_cut(tmp_path):
    write_model(tmp_path, "m", *[convolution(stride=f"[{place}, 1]") for place in range(25)])
    values = data_of(render_html(read_report(tmp_path)))["survey"]["arguments"]["aten.convolution.default"][
        "arg3"
    ]
    assert len(values) == 21
    assert values[-1] == ["5 more values", None]


def test_a_raw_file_that_cannot_be_read_is_on_the_page(stat):
    (stat / "raw" / "cut.parquet").write_bytes(b"PAR1")
    write_row(stat, "cut", stat / "raw" / "cut.parquet")
    problems = data_of(render_html(read_report(stat)))["problems"]
    assert any(path.endswith("cut.parquet") and detail.startswith("is cut off") for path, detail in problems)


def test_the_report_goes_through_json_with_its_survey(stat):
    report = read_report(stat)
    assert Report.from_json(report.to_json()) == report
    assert "survey" not in read_report(write(stat.parent / "out", bench())).to_json()


def test_traces_and_rows_are_not_taken_for_results_of_bench(stat):
    (stat / "profile").mkdir()
    (stat / "profile" / "a.json").write_text("{ a trace that is cut")
    assert read_report(stat).every_problem == ()


def test_a_survey_with_nothing_to_show_does_not_hide_the_results_of_bench(tmp_path):
    write_row(tmp_path, "a", None, status="crashed", error="signal 11")
    report = read_report(write(tmp_path, bench()))
    assert report.survey is None
    assert len(report.benches) == 1
    assert [problem.detail.split(";")[0] for problem in report.problems] == [
        "none of the survey's 1 models is ok"
    ]


def test_the_summary_of_a_forward_survey_has_no_backward(tmp_path):
    write_raw(tmp_path, "m", relu(), relu())
    survey = read_report(tmp_path).survey
    assert survey is not None
    assert summarise(survey) == "1 of 1 models ok, 2 ops forward (1 unique)"
