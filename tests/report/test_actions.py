"""Suggested actions: what helps most comes first."""

from torchport.report import Report
from torchport.report.actions import next_actions
from torchport.report.survey import Survey, SurveyModel

from .records_at_hand import bench, coverage, failed, stayed


def texts(report):
    return [action.text for action in next_actions(report)]


def test_an_op_that_completes_models_comes_before_one_that_is_one_of_several():
    roll = stayed("aten.roll.default", flops=0)
    report = Report(
        coverages=(
            coverage("a", roll),
            coverage("b", roll, roll),
            coverage("c", roll, stayed("aten.sort.default", flops=100)),
        )
    )
    assert texts(report) == [
        "Lowering aten.roll on openvino would complete 2 models",
        "Lowering aten.sort on openvino would move 100% of all FLOPs that stay",
    ]


def test_shares_are_of_what_stays_on_that_target():
    report = Report(coverages=(coverage("a", stayed(flops=1), stayed("aten.mm.default", flops=3)),))
    assert texts(report)[0] == "Lowering aten.mm on openvino would move 75% of all FLOPs that stay"


def test_an_op_whose_lowering_is_there_is_to_be_taken():
    report = Report(coverages=(coverage("a", stayed(reason="dtype", flops=0)),))
    [action] = next_actions(report)
    assert action.text == "Taking aten.cumsum on openvino would complete 1 model"
    assert action.detail == "dtype: nothing computes it"
    assert (action.model, action.target, action.node) == ("a", "openvino", "cumsum")


def test_models_that_fail_alike_are_one_action():
    rows = (failed("a", "no op 12"), failed("b", "no op 7"), failed("c", "other"), bench("d"))
    assert texts(Report(rows)) == ["Fix why 2 models fail on openvino", "Fix why c fails on openvino"]


def test_a_model_that_fails_alike_on_two_targets_is_one_action():
    wrong = {"status": "inaccurate", "pcc": 0.5, "error": ""}
    rows = (bench("a", "ttnn", **wrong), bench("a", "openvino", **wrong))
    assert texts(Report(rows)) == ["Fix why a is inaccurate on ttnn, openvino"]


def test_what_could_not_be_surveyed():
    models = tuple(SurveyModel(name, "raised", "no such op") for name in "ab")
    report = Report(survey=Survey((*models, SurveyModel("c", "ok")), (), (), (), ()))
    assert texts(report) == ["Fix why 2 models could not be surveyed"]


def test_nothing_to_do():
    assert texts(Report((bench(),), (coverage(),))) == []


def test_three_at_most():
    ops = [stayed(f"aten.op{place}.default") for place in range(5)]
    assert len(texts(Report(coverages=(coverage("a", *ops),)))) == 3
