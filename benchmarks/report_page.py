"""Measures the page of a large model: its size, the time until it is usable, and the time to expand a block.

python benchmarks/report_page.py [LAYERS]

Analyses ResNet-50, and a Llama with enough layers for about 20,000 ops; opens its page in Chromium.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

from torchport import analyze, zoo
from torchport.report import Report, render_html
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
UNFOLD = """async label => {
  const box = [...document.querySelectorAll('[role=treeitem]')].find(one => one.ariaLabel.startsWith(label));
  const id = box.dataset.id;
  const all = () => [...document.querySelectorAll('[aria-expanded=true]')];
  const open = () => all().some(one => one.dataset.id === id);
  const start = performance.now();
  box.querySelector('.fold').dispatchEvent(new MouseEvent('click', { bubbles: true }));
  for (let frame = 0; !open(); frame += 1) {
    if (frame > 300) throw new Error('it does not unfold');
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""


def llama(layers: int) -> Report:
    """Analyse a Llama of this many layers, without weights."""
    ensure_torchvision_ops()  # transformers imports torchvision
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1000, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
        tokens = torch.zeros(1, 32, dtype=torch.long)
    return Report(analyses=(analyze(model, (tokens,), name=f"Llama of {layers} layers"),))


def resnet50() -> Report:
    model = zoo.load("torchvision:resnet50", weights=False, device="meta")
    return Report(analyses=(analyze(model.module, model.args, model.kwargs, name="torchvision:resnet50"),))


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 350
    large, small = llama(layers), resnet50()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "llama.html"
        start = time.perf_counter()
        path.write_text(render_html(large), encoding="utf-8")
        written = time.perf_counter() - start
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1300, "height": 850})
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(f"{path.as_uri()}#/graph")
        page.wait_for_selector("[role=treeitem]")
        usable = time.perf_counter() - start
        page.get_by_role("searchbox").fill("LlamaDecoderLayer ×")
        page.keyboard.press("Enter")
        page.wait_for_selector("[aria-selected=true]")
        repeat = page.evaluate(UNFOLD, "LlamaDecoderLayer ×")
        block = page.evaluate(UNFOLD, "LlamaDecoderLayer, layers.")
        browser.close()
        figures = {
            "ops": len(large.analyses[0].cost.ops),
            "bytes": path.stat().st_size,
            "resnet50_bytes": len(render_html(small).encode()),
            "write_seconds": round(written, 3),
            "usable_seconds": round(usable, 3),
            "unfold_repeat_ms": round(repeat, 1),
            "unfold_block_ms": round(block, 1),
        }
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
