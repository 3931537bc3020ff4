"""The page in a real browser, opened from disk without network: searching, unfolding, sorting, comparing."""

import shutil

import pytest
import torch

from torchport import zoo
from torchport.analysis import ModelOrigin, analyze
from torchport.compiler.explain_model import explain_graph
from torchport.report import Report, read_report, render_html

from .records_at_hand import (
    accuracy,
    analysis,
    bench,
    coverage,
    failed,
    graph,
    quantization,
    stayed,
    tries,
    write,
)  # fmt: skip
from .survey.surveys_at_hand import convolution, relu, write_model, write_row

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed: `apt-get install chromium`", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

expect = playwright.expect
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens a report, and checks at the end that nothing was loaded and no error was logged."""
    contexts, faults, loaded = [], [], []

    def open_page(report, address="", width=1300, **options):
        path = tmp_path / "report.html"
        path.write_text(render_html(report, **options), encoding="utf-8")
        context = browser.new_context(offline=True, viewport={"width": width, "height": 850})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on(
            "console", lambda line: faults.append(line.text) if line.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(f"{path.as_uri()}{address}")
        page.wait_for_selector("main")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
    assert {url.split("#")[0] for url in loaded if not url.startswith(("data:", "blob:"))} <= {
        (tmp_path / "report.html").as_uri()
    }


def of_model(name, kept):
    """Return the page of `torchport explain --html` for a library's model, with some ops kept on the host."""
    model = zoo.load(name, weights=False, device="meta")
    with torch.no_grad():
        covered, graph = explain_graph(
            model.module, model.args, model.kwargs, target="host", options={"keep_ops": [kept]}, name=name
        )
        told = analyze(model.module, model.args, model.kwargs, name=name, origin=ModelOrigin(name))
    return Report(coverages=(covered,), analyses=(told,), graphs=(graph,))


@pytest.fixture(scope="module")
def resnet18():
    return of_model("torchvision:resnet18", "aten.max_pool2d_with_indices.default")


@pytest.fixture(scope="module")
def bert():
    model = zoo.load("hf:bert-base-uncased", weights=False, device="meta")
    return Report(analyses=(analyze(model.module, model.args, model.kwargs, name="bert"),))


def nodes(page):
    return page.locator('[role="treeitem"]')


def node(page, label):
    return page.locator(f'[role="treeitem"][aria-label^="{label}"]').first


def test_a_link_leads_from_a_reason_to_its_op(show, resnet18):
    page = show(resnet18)
    page.get_by_role("link", name="aten.max_pool2d_with_indices.default").click()
    details = page.get_by_role("complementary", name="Details")
    details.get_by_text("kept_by_option").first.wait_for()
    assert "1x64x56x56" in details.inner_text()
    assert page.locator('[aria-selected="true"]').count() == 1


def test_blocks_that_repeat_are_one_box_that_unfolds(show, bert):
    page = show(bert, "#/graph")
    page.get_by_role("searchbox").fill("BertLayer")
    page.keyboard.press("Enter")
    folded = node(page, "BertLayer × 12")
    folded.wait_for()
    before = nodes(page).count()
    folded.locator(".fold").click()
    page.wait_for_function(
        "before => document.querySelectorAll('[role=treeitem]').length > before", arg=before
    )
    assert folded.get_attribute("aria-expanded") == "true"
    page.get_by_role("button", name="Fold all").click()
    page.wait_for_function(
        "before => document.querySelectorAll('[role=treeitem]').length < before", arg=before
    )


def test_a_search_unfolds_what_it_finds(show, bert):
    page = show(bert, "#/graph")
    page.keyboard.press("/")
    page.keyboard.type("layer.7 gelu")
    page.wait_for_selector("text=1 found")
    page.keyboard.press("Enter")
    page.wait_for_selector('[aria-selected="true"]')
    assert page.locator('[aria-selected="true"]').get_attribute("aria-label").startswith("gelu")
    assert "layer.7" in page.get_by_role("complementary", name="Details").inner_text()


def test_a_link_opens_the_page_at_one_op(show, bert):
    path = "bert.encoder.layer.11.intermediate.intermediate_act_fn"
    page = show(bert, f"#/graph?view=written&op=gelu&module={path}")
    page.wait_for_selector('[aria-selected="true"]')
    assert path in page.get_by_role("complementary", name="Details").inner_text()


def test_colours_are_switched_and_carry_a_second_cue(show, resnet18):
    page = show(resnet18, "#/graph?target=host")
    pool = node(page, "max_pool2d_with_indices")
    assert "stays" in pool.get_attribute("class")
    assert pool.locator(".sign").text_content() == "⌂"
    page.get_by_label("Colour by").select_option("flops")
    convolution = node(page, "convolution, conv1")
    assert "cost" in convolution.get_attribute("class")
    # 2 * 3 * 7 * 7 * 64 * 112 * 112 of ResNet-18's 3,628,146,688 FLOPs
    assert convolution.locator(".sign").text_content() == "6.5%"
    page.get_by_label("Colour by").select_option("precision")
    assert node(page, "convolution, conv1").locator(".sign").text_content() == "f32"


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('data-id')")


def press(page, key):
    """Press a key, and wait until the focus has moved to another box."""
    before = focused(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => ![before, null].includes(document.activeElement.getAttribute('data-id'))", arg=before
    )


def test_everything_is_reached_with_the_keyboard(show, resnet18):
    page = show(resnet18, "#/graph?target=host")
    page.locator('[role="treeitem"][tabindex="0"]').focus()
    first = focused(page)
    press(page, "ArrowDown")
    press(page, "End")  # far below the visible part
    press(page, "Home")
    assert focused(page) == first
    while not page.evaluate("document.activeElement.ariaLabel").startswith("BasicBlock × 2"):
        press(page, "ArrowDown")
    block = page.locator(f'[data-id="{focused(page)}"]')
    page.keyboard.press("ArrowRight")
    expect(block).to_have_attribute("aria-expanded", "true")
    press(page, "ArrowRight")  # into the block
    press(page, "ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(block).to_have_attribute("aria-expanded", "false")


def test_keys_work_after_the_focused_box_was_dragged_out_of_sight(show, resnet18):
    page = show(resnet18, "#/graph?target=host")
    page.locator('[role="treeitem"][tabindex="0"]').focus()
    first = focused(page)
    frame = page.locator(".pane").bounding_box()
    page.mouse.move(frame["x"] + 5, frame["y"] + frame["height"] - 5)
    page.mouse.wheel(0, -3000)
    page.mouse.wheel(0, -3000)
    assert focused(page) == first
    press(page, "ArrowDown")


def test_views_stand_side_by_side_and_unfold_in_step(show, resnet18):
    page = show(resnet18, "#/graph?target=host")
    page.get_by_role("button", name="Add a pane").click()
    page.get_by_role("button", name="Add a pane").click()
    page.wait_for_function("document.querySelectorAll('.pane-card').length === 3")
    shown = page.locator(".pane-head select").evaluate_all(
        "all => all.map(one => one.selectedOptions[0].text)"
    )
    assert sorted(shown) == ["as written", "host, ATen graph", "host, islands"]
    panes = page.locator(".pane-card")
    panes.nth(0).locator('[aria-label^="BasicBlock × 2"] .fold').first.click()
    for place in range(2):
        opened = panes.nth(place).locator('[aria-expanded="true"][aria-label^="BasicBlock × 2"]')
        opened.first.wait_for()


def test_runs_are_compared_in_one_graph(show, resnet18):
    before = of_model("torchvision:resnet18", "aten.mean.dim")
    page = show(resnet18, "#/graph?target=host", baseline=before)
    page.get_by_label("Compare with").select_option("baselineaten host")
    pool = node(page, "max_pool2d_with_indices")
    assert pool.locator(".sign").text_content() == "▼ stays"
    page.get_by_role("searchbox").fill("mean")
    page.keyboard.press("Enter")
    mean = node(page, "mean")
    assert mean.locator(".sign").text_content() == "▲ taken"


def test_tables_sort_filter_and_open_the_graph(show, resnet18):
    page = show(resnet18, "#/tables")
    table = page.locator("#ops")
    table.get_by_role("button", name="Count", exact=True).click()
    counts = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert [int(count) for count in counts] == sorted(map(int, counts), reverse=True)
    table.get_by_role("searchbox").fill("max_pool2d")
    assert table.locator("tbody tr").count() == 1
    table.get_by_role("link", name="maxpool").click()
    page.wait_for_selector('[aria-selected="true"]')
    assert "as written" in page.locator(".pane-head select").evaluate("one => one.selectedOptions[0].text")


def test_cost_has_its_charts(show, resnet18):
    page = show(resnet18, "#/cost")
    assert "11,689,512" in page.locator(".tiles").inner_text()
    page.locator(".treemap .area", has_text="layer4").first.click(position={"x": 20, "y": 8})
    assert "layer4" in page.get_by_role("navigation", name="Module").inner_text()
    page.wait_for_selector(".chart svg[role=img]")
    assert page.locator(".chart svg[role=img]").count() == 2
    with page.expect_download() as picture:
        page.get_by_role("button", name="Save as PNG: Bytes").click()
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")


def test_a_failing_model_says_why(show):
    page = show(Report((failed("hf:broken", "there is no such op"), bench())))
    assert "✕ failed" in page.locator("#results").inner_text()
    assert "there is no such op" in page.locator(".complaints").inner_text()
    assert page.locator(".actions li").count() == 1


def test_all_engines_that_auto_tried_are_in_a_table(show):
    page = show(Report((bench(target="auto", tries=tries()),)))
    rows = page.locator("#tries-0 tbody tr")
    assert rows.count() == 3
    assert "its process | ended" in rows.nth(2).inner_text()
    page.locator("#tries-0").get_by_role("button", name="Of Eager", exact=True).click()
    expect(rows.first).to_contain_text("swift")


def test_layers_of_a_quantized_model_are_drawn_and_sorted(show):
    page = show(Report(quantizations=(quantization(),)))
    rows = page.locator("#layers-0 tbody tr")
    assert "sensitive" in rows.first.inner_text()
    page.locator("#layers-0").get_by_role("button", name="SQNR", exact=True).click()
    expect(rows.last).to_contain_text("18.3 dB")
    assert "3.8 MiB → 1.2 MiB" in page.locator("dl.facts").inner_text()
    page.wait_for_selector("svg[aria-label^='Signal to quantization noise']")


def test_a_survey_of_twenty_models(show, tmp_path):
    for place in range(19):
        write_model(tmp_path / "stat", f"model{place}", convolution(flops=10), *[relu()] * (place + 1))
    write_row(tmp_path / "stat", "model19", None, status="timeout", error="ran past 5 s")
    page = show(read_report(tmp_path / "stat"))
    assert "19 / 20" in page.locator(".tiles").inner_text()
    assert page.locator("#survey-ops tbody tr").first.inner_text().split()[:2] == ["aten.relu.default", "190"]
    page.locator("#survey-ops").get_by_role("button", name="aten.convolution.default").click()
    assert "[1, 1]" in page.locator("#survey-arguments").inner_text()
    assert "ran past 5 s" in page.locator(".complaints").inner_text()
    page.wait_for_selector("text=How often each model calls")


HOSTILE = [
    "</script><script>document.title='owned'</script>", "<img src=x onerror=document.title='owned'>",
    "‮txt.exe⁦", "x" * 10_000, "javascript:alert(1)", "a\x00b\x1b[2J", "{{7*7}}", "__proto__", "#/graph?op=x",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(show, tmp_path, name):
    records = [
        bench(name, name, pcc=float("nan"), original_time=float("inf"), compiled_time=1.0),
        coverage(name, stayed(name, name, detail=name, source=name, node=name)),
        graph(name, name), accuracy(name, name),
    ]  # fmt: skip
    page = show(read_report(write(tmp_path / "records", *records)), title="fine")
    for section in ("overview", "graph", "numbers"):
        page.evaluate("section => location.hash = `#/${section}`", section)
        page.wait_for_timeout(100)
        assert page.title() == "fine"
        assert page.locator("main img, main script, main iframe").count() == 0
        assert "‮" not in page.locator("body").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def audit(page):
    """Return the serious violations that axe finds."""
    module = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = module.Axe().run(page).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"][:200])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.conformance)])
def test_axe_finds_no_serious_violation(show, resnet18, scheme, tmp_path):
    write_model(tmp_path / "stat", "a", convolution(flops=10), relu())
    report = Report(
        (bench(), failed()),
        (coverage("torchvision:resnet18", stayed()),),
        survey=read_report(tmp_path / "stat").survey,
        accuracies=(accuracy(),),
        quantizations=(quantization(),),
        analyses=resnet18.analyses,
        graphs=resnet18.graphs,
    )
    page = show(report, baseline=Report((bench(ops_remain=9),)))
    page.emulate_media(color_scheme=scheme)
    for section in ("overview", "graph", "tables", "cost", "survey", "numbers", "quantization"):
        page.evaluate("section => location.hash = `#/${section}`", section)
        page.wait_for_timeout(300)
        assert audit(page) == [], section


def test_it_fits_a_phone_and_paper(show, resnet18):
    report = Report(
        (bench(), failed()), (coverage("torchvision:resnet18", stayed()),), analyses=(analysis(),)
    )
    page = show(report, width=375)
    for section in ("overview", "tables", "cost"):
        page.evaluate("section => location.hash = `#/${section}`", section)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 376, section
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation", name="Sections").is_visible()
    assert page.pdf().startswith(b"%PDF")
