"""The documentation builds as a site, without a warning, and names every command, option and public name."""

import html
import os
import re
import subprocess
import sys

import click
import pytest

import torchport
from torchport.cli.main import cli


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a link that leads nowhere and a page that no menu has are warnings, and fail it."""
    folder = tmp_path_factory.mktemp("site")
    from docs.markdown import ROOT

    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def words_of(page) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_command_and_option_is_named(site):
    text = words_of(site / "cli.html")
    for name, command in cli.commands.items():
        assert f"torchport {name}" in text
        for option in (param for param in command.params if isinstance(param, click.Option)):
            for spelling in option.opts:
                assert re.search(rf"(?<![\w-]){spelling}(?![\w-])", text), f"{name} {spelling}"


def test_every_public_name_is_in_the_reference(site):
    text = (site / "reference.html").read_text(encoding="utf-8")
    for name in set(torchport.__all__) - {"__version__", "structure", "zoo"}:
        assert re.search(rf'id="torchport\.[\w.]*\b{name}"', text), f"{name}: add it to docs/reference.md"


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        found = re.findall(
            r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', page.read_text(encoding="utf-8")
        )
        found += re.findall(
            r'<link[^>]+rel="stylesheet"[^>]+href="(https?:[^"]+)"', page.read_text(encoding="utf-8")
        )
        assert not found, f"{page.name}: {found[0]}"
