"""The HTML report: read back with a parser, as a browser would."""

from html.parser import HTMLParser

import pytest

from torchport.report import read_report, render_html

from .records_at_hand import bench, coverage, failed, stayed, write

VOID = {"meta", "input", "br", "wbr", "link", "img"}


class Page(HTMLParser):
    """Collects rows, links and texts; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.tags, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def attributes(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def page(tmp_path, *records):
    return Page(render_html(read_report(write(tmp_path, *records))))


def test_the_table_holds_the_markdown_tables_cells(tmp_path):
    made = page(tmp_path, bench())
    assert made.rows[0][0] == "Model"
    assert made.rows[1] == [
        "torchvision:resnet18", "openvino", "✅", "4", "70 (12)", "3 (2)", "2", "30.00", "12.00", "2.50x",
        "1500.00", "1.000000",
    ]  # fmt: skip


def test_cells_carry_the_number_they_are_sorted_by(tmp_path):
    made = page(tmp_path, bench(), failed())
    times = [cell["data-value"] for cell in made.attributes("td")][7::12]
    assert times == ["", "0.03"]
    assert len([tag for tag in made.attributes("button") if tag["type"] == "button"]) == 12


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = render_html(read_report(write(tmp_path, bench(), coverage("torchvision:resnet18", stayed()))))
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    made = Page(text)
    assert not {"link", "img", "iframe"} & {tag for tag, _ in made.tags}
    assert all("src" not in attributes for _, attributes in made.tags)
    policy = next(tag["content"] for tag in made.attributes("meta") if "http-equiv" in tag)
    assert policy.startswith("default-src 'none'")


def test_texts_are_escaped(tmp_path):
    nasty = '<script>alert("x")</script>'
    op = stayed(detail=nasty, module_path=nasty)
    made = page(tmp_path, bench(nasty), failed(nasty + "2", error=nasty), coverage(nasty, op))
    assert len(made.attributes("script")) == 1
    assert made.rows[1][0] == nasty


def test_a_failure_says_why(tmp_path):
    made = page(tmp_path, failed(error="export: no such op"))
    assert "hf:broken on openvino: export: no such op" in made.text
    marks = [span for span in made.attributes("span") if span.get("role") == "img"]
    assert marks == [{"role": "img", "aria-label": "failed", "title": "export: no such op"}]


def test_a_bad_file_is_named(tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "cut.json").write_text("{")
    made = page(tmp_path, bench())
    assert "cut.json: is not valid JSON" in made.text


@pytest.mark.parametrize(("compiled", "kind"), [(0.012, "bar"), (0.060, "bar slower")])
def test_the_bar_shows_whether_it_is_faster(tmp_path, compiled, kind):
    made = page(tmp_path, bench(compiled_time=compiled))
    assert kind in [div.get("class") for div in made.attributes("div")]


def test_the_longest_bar_is_the_best_speed_up(tmp_path):
    made = page(tmp_path, bench("a", compiled_time=0.010), bench("b", compiled_time=0.020))
    # Speed-ups of 3 and 1.5; the scale ends 2% above the best.
    styles = [bar["style"] for bar in made.attributes("i")]
    assert styles == ["--part:98.0%;--one:32.7%", "--part:49.0%;--one:32.7%"]


def test_stayed_ops_are_grouped_and_linked(tmp_path):
    ops = [stayed(module_path=f"encoder.layer.{i}") for i in range(4)] + [stayed("aten.sort.default", "head")]
    made = page(tmp_path, bench(), coverage("torchvision:resnet18", *ops))
    section = next(tag["id"] for tag in made.attributes("details") if "id" in tag)
    assert [link["href"] for link in made.attributes("a")] == [f"#{section}"]
    cumsum, sort = made.rows[-2:]
    assert cumsum[:3] == ["aten.cumsum.default", "4", "no_lowering"]
    assert "nothing computes it" in cumsum[3]
    assert "write it as a product" in cumsum[3]
    assert "encoder.layer.0 · model.py:12 in forward" in cumsum[4]
    assert "and 3 more places" in cumsum[4]
    assert sort[:2] == ["aten.sort.default", "1"]
    assert "90.0% of FLOPs and 25.0% of bytes on the target" in made.text


def test_the_ground_is_named_once(tmp_path):
    made = page(tmp_path, bench("a"), bench("b"))
    assert made.text.count("torch 2.13.0 · processor: Some CPU") == 1
