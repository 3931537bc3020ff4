"""Makes the images of report.md: python docs/screenshots.py REPORT.html SURVEY.html QUANTIZED.html [NAME…]

Takes the pages of a bench of BERT and others, of a survey, and of a quantized model; writes
docs/images/report-*.png, or only the named ones.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
IMAGES = Path(__file__).parent / "images"
MODEL = "hf:bert-base-uncased"


def side_by_side(page: Page) -> None:
    """Show the model as written next to the ATen graph, coloured by cost, with an op's details."""
    page.get_by_role("button", name="Add a pane").click()
    page.get_by_label("Colour by").select_option("flops")
    page.get_by_role("searchbox").fill("layer.3 attention")
    page.keyboard.press("Enter")


def main() -> None:
    report, survey, quantized = (Path(argument).resolve().as_uri() for argument in sys.argv[1:4])
    shots = [
        ("overview", report, "#/overview", "light", None),
        ("graph", report, f"#/graph?model={MODEL}", "light", side_by_side),
        ("graph-dark", report, f"#/graph?model={MODEL}", "dark", None),
        ("tables", report, f"#/tables?model={MODEL}", "light", None),
        ("cost", report, f"#/cost?model={MODEL}", "light", None),
        ("numbers", report, "#/numbers", "dark", None),
        ("survey", survey, "#/survey", "light", None),
        ("quantization", quantized, "#/quantization", "light", None),
    ]
    wanted = sys.argv[4:] or [name for name, *_ in shots]
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, address, place, scheme, prepare in shots:
            if name not in wanted:
                continue
            page = browser.new_page(viewport={"width": 1300, "height": 860}, color_scheme=scheme)
            page.goto(f"{address}{place}")
            page.wait_for_selector("main")
            page.wait_for_timeout(1500)
            if prepare is not None:
                prepare(page)
                page.wait_for_timeout(1000)
            path = IMAGES / f"report-{name}.png"
            page.screenshot(path=path)
            page.close()
            with Image.open(path) as picture:
                picture.convert("RGB").quantize(128).save(path, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
