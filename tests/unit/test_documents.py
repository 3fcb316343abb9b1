"""The documents build without a warning: links, anchors, the reference's docstrings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        for name in ("href", "src", "srcset"):
            if values.get(name):
                self.found.append(str(values[name]))


def _read(page: Path) -> _Links:
    parser = _Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_every_link_within_the_site_has_a_target(site: Path) -> None:
    pages = {page: _read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 8
    missing = []
    for page, links in pages.items():
        for link in links.found:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (page.parent / path).resolve() if path else page
            anchors = pages[target].ids if target in pages else {anchor}
            if not target.exists() or (anchor and anchor not in anchors):
                missing.append((page.name, link))
    assert missing == []


def test_the_reference_names_every_verb_and_every_public_name(site: Path) -> None:
    from jupyter_ddl import __all__ as public
    from jupyter_ddl.cell.options import VERBS

    text = "".join(page.read_text(encoding="utf-8") for page in site.glob("reference/*.html"))
    assert [verb for verb in VERBS if f"%%distribute {verb}" not in text] == []
    hidden = {"__version__", "load_ipython_extension", "runs"}  # runs: list_runs is its own name
    assert [name for name in sorted({*public} - hidden) if name not in text] == []


def test_nothing_in_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//')
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text())] == []
