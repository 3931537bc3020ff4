"""Extends mkdocs beyond its configuration: pages of folders, and documents from outside of `docs/`.

The site is built from `docs/`. The documents in the project's root, and the scripts in `examples/`, are
linked from there and have links of their own: they become pages and files in `project/`, and links are
rewritten.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "compat/README.md")
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a folder in the navigation by its pages."""
    config.nav = [_filled(item) for item in config.nav or ()]
    return config


def _filled(item: object) -> object:
    if isinstance(item, dict):
        return {title: _filled(value) for title, value in item.items()}
    if isinstance(item, list):
        filled = [(part, _filled(part)) for part in item]
        return [page for part, pages in filled for page in (pages if isinstance(pages, list) else [pages])]
    if item == "project/":
        return [f"project/{name}" for name in PROJECT]
    if isinstance(item, str) and item.endswith("/"):
        pages = sorted((DOCS / item).glob("*.md"), key=lambda path: (path.stem != "index", path.name))
        return [f"{item}{path.name}" for path in pages]
    return item


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the project's own documents and examples."""
    for path in [*(ROOT / name for name in PROJECT), *sorted((ROOT / "examples").glob("*.py"))]:
        place = f"project/{path.relative_to(ROOT).as_posix()}"
        files.append(File.generated(config, place, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links that lead out of `docs/`, or back into it."""
    place = PurePosixPath(page.file.src_uri)
    original = ROOT / place.relative_to("project") if place.parts[0] == "project" else DOCS / place

    def rewritten(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(original.parent / match[1]))
        if target.is_dir():
            found = next((name for name in ("index.md", "README.md") if (target / name).is_file()), None)
            target = target / found if found else min(target.glob("*.md"), default=target)
        if target.is_relative_to(DOCS):
            there = target.relative_to(DOCS).as_posix()
        elif target == ROOT / "README.md":
            there = "index.md"
        else:
            there = f"project/{target.relative_to(ROOT).as_posix()}"
        return f"]({os.path.relpath(there, place.parent.as_posix())}"

    return _LINK.sub(rewritten, markdown)
