"""The results as CSV."""

import csv
import io

from torchport.report import read_report, render_csv

from .records_at_hand import bench, failed, write


def test_each_row_can_be_read_back(tmp_path):
    report = read_report(write(tmp_path, bench(), failed(error='a "quoted", and\nlonger one')))
    rows = list(csv.DictReader(io.StringIO(render_csv(report))))
    broken, good = rows
    assert (good["model"], good["target"], good["status"]) == ("torchvision:resnet18", "openvino", "ok")
    assert float(good["original_time"]) == 0.030
    assert float(good["speedup"]) == 2.5
    assert float(good["pcc"]) == 0.99999951
    assert (broken["pcc"], broken["error"]) == ("", 'a "quoted", and\nlonger one')
