"""The documents: links, anchors, the reference's docstrings, spelling, pictures, the badge."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import repository
from PIL import Image

from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.commands.runs import RUNS
from jupyter_ddl.plugins import VERBS

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
        timeout=280,
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
    from jupyter_ddl import _EXPORTS
    from jupyter_ddl import __all__ as public
    from jupyter_ddl.plugins import VERBS

    pages = [_read(page) for page in site.glob("reference/*.html")]
    magics = (site / "reference" / "magics.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS.names() if f"%%distribute {verb}" not in magics] == []
    documented = {each for page in pages for each in page.ids}
    # A package has the name of some: what is meant is the function.
    packages = {path.name for path in (ROOT / "jupyter_ddl").iterdir() if path.is_dir()}
    paths = {
        name: ".".join(_EXPORTS[name]) if name in packages else f"jupyter_ddl.{name}"
        for name in {*public, *_EXPORTS} - {"client"}
    }
    paths["client"] = "jupyter_ddl.client.dask_client.connect_client"
    hidden = {"__version__", "load_ipython_extension"}
    assert [name for name in sorted({*paths} - hidden) if paths[name] not in documented] == []


def test_nothing_in_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//')
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text())] == []


def test_the_first_page_leads_to_every_lesson_with_its_outputs(site: Path) -> None:
    lessons = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert lessons <= set(_read(site / "index.html").found)


def test_every_recorded_run_plays_in_the_page_about_recordings(site: Path) -> None:
    page = _read(site / "replay.html")
    frames = [link for link in page.found if link.startswith("examples/")]
    played = [re.search(r"<title>(.*)</title>", (site / each).read_text()) for each in frames]
    heads = [_head(path) for path in (ROOT / "docs" / "examples").iterdir()]
    assert sorted(found[1] for found in played if found) == sorted(head["name"] for head in heads)


def _head(recording: Path) -> dict[str, str]:
    with gzip.open(recording, "rt", encoding="utf-8") as lines:
        head: dict[str, str] = json.loads(next(lines))
    return head


_READ = (".md", ".ipynb")


def _written() -> list[Path]:
    """What people read, as it lies in the repository."""
    folders = [ROOT / "docs", ROOT / "notebooks"]
    pages = [path for folder in folders for path in folder.rglob("*") if path.suffix in _READ]
    return [*ROOT.glob("*.md"), *pages]


def test_the_documents_are_spelled_well() -> None:
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, *map(str, _written())], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_to_elsewhere_are_well_formed() -> None:
    wrong = []
    for path in _written():
        for link in re.findall(r"\]\((\w+://[^)\s]*)\)", path.read_text(encoding="utf-8")):
            parts = urlsplit(link)
            if parts.scheme != "https" or "." not in parts.netloc or "@" in parts.netloc:
                wrong.append((path.name, link))
    assert wrong == []


def test_files_that_the_documents_send_readers_to_exist() -> None:
    pages = [*(ROOT / "docs" / "architecture").glob("*.md")]
    pages += [
        ROOT / "docs" / "tour.md",
        ROOT / "docs" / "architecture.md",
        ROOT / "CONTRIBUTING.md",
    ]
    homes = (ROOT, ROOT / "jupyter_ddl")
    folders = ("jupyter_ddl", "labextension/src", "tests", "tools")
    known = {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}
    missing = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        paths = re.findall(r"`((?:[\w.]+/)+[\w*.]+\.\w+)`", text)
        missing += [
            (page.name, path)
            for path in paths
            if "<" not in path and not any(any(home.glob(path)) for home in homes)
        ]
        names = re.findall(r"`(\w+\.(?:py|js|tsx?))`", text)
        missing += [
            (page.name, name) for name in names if name not in known and not (ROOT / name).exists()
        ]
    assert missing == []


_BADGE = re.compile(r"\[!\[[^\]]*\]\(docs/images/binder_badge\.svg\)\]\(([^)]+)\)")


def test_every_variable_that_people_may_set_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "variables.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "jupyter_ddl").rglob("*.py"))
    ours = {
        "OWNER",
        "ZYGOTE",
        "RANK",
        "LEASE_S",
        "DASKCLUSTER",
    }  # set by us, for processes and pods of ours
    read = set(re.findall(r"\bJUPYTER_DDL_([A-Z_]+)\b", sources)) - ours
    assert sorted(read) == sorted(set(re.findall(r"^\| `JUPYTER_DDL_([A-Z_]+)`", page, re.M)))


def test_the_badge_leads_to_binder_or_to_how_one_gets_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project.get("urls", {}).get("Repository")
    badge = _BADGE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert badge is not None
    if address is None:
        assert badge[1] == "docs/binder.md"
    else:
        assert badge[1] == repository.badge_target(address)


def test_one_command_leads_the_badge_and_the_live_cells_to_a_fork(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(ValueError, match=r"expected https://github\.com/OWNER/NAME"):
        repository.set_address("https://example.org/me/mine", tmp_path)
    for address, name in (
        ("git@github.com:me/mine.git", "me/mine"),
        ("https://github.com/her/hers", "her/hers"),
        ("https://github.com/her/hers", "her/hers"),
    ):
        repository.set_address(address, tmp_path)
        badge = _BADGE.search((tmp_path / "README.md").read_text(encoding="utf-8"))
        assert badge is not None
        assert badge[1].startswith(f"https://mybinder.org/v2/gh/{name}/HEAD?")
        assert repository.binder_build(tmp_path) == f"https://mybinder.org/build/gh/{name}/HEAD"
        settings = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
        assert settings.count("[project.urls]") == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_of_the_readme_moves_and_is_small(theme: str) -> None:
    path = ROOT / "docs" / "images" / f"live_view_{theme}.webp"
    assert path.stat().st_size <= 600_000
    with Image.open(path) as picture:
        assert picture.n_frames >= 10
        assert picture.width >= 2 * 600  # sharp at the width at which it is shown
    assert f'docs/images/{path.name}"' in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_verb_and_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", readme, flags=re.MULTILINE | re.DOTALL)
    said = " ".join(re.findall(r"`([^`]+)`", prose))
    assert [verb for verb in VERBS.names() if f"%%distribute {verb}" not in said] == []
    commands = {*CLUSTER.commands, *RUNS.commands} - {"status"}
    assert sorted(commands - set(said.split())) == []
