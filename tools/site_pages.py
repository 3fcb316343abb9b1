"""Pages of the documents that are made and not written (a hook of mkdocs).

The README is the first page, CONTRIBUTING and CHANGELOG are pages of their own, and the reference
of the magics is what ``--help`` prints.  Links between them are turned to the pages' places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from repository import binder_build

ROOT = Path(__file__).resolve().parent.parent

_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_NOTEBOOK = re.compile(r"notebooks/(\w+)\.ipynb")
"""Its executed copy is a page of the site."""
_BARE = ("LICENSE", "binder/", "bench/", "labextension/")
"""What a reader of the site finds only in the repository: its links become plain words."""
_LINK = re.compile(r"(!?)\[((?:!\[[^\]]*\]\([^)\s]+\)|[^\[\]])*)\]\(([^)\s]+)\)")
"""A link or an image; the words of a link may be an image."""
_FALLBACK = "examples/search.html"
_REPLAYS = {
    _FALLBACK: "search-500-trials.jsonl.gz",
    "examples/training.html": "training-64-ranks.jsonl.gz",
}
"""Pages that play a recording of ``docs/examples``; live cells fall back on the first one."""
_REPLAY_SPEED = 8.0
_SOURCE = re.compile(r'(src|srcset)="docs/')


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages."""
    for source, page in _PAGES.items():
        text = _turned((ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/magics.md", content=_magics()))
    for page, recording in _REPLAYS.items():
        files.append(File.generated(config, page, content=_replay(recording)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of written pages that leave the folder of the documents."""
    if page.file.src_uri in (*_PAGES.values(), "reference/magics.md"):
        return markdown
    if page.file.src_uri == "live.md":
        return markdown.replace("{{ binder }}", binder_build()).replace("{{ replay }}", _FALLBACK)
    up = "../" * (page.file.src_uri.count("/") + 1)
    back = "../" * page.file.src_uri.count("/")

    def turn(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if not target.startswith(up):
            return match.group(0)
        return _link(mark, words, target.removeprefix(up), back)

    return _LINK.sub(turn, markdown)


def _turned(text: str) -> str:
    """A file of the root as a page of the site."""
    text = _SOURCE.sub(r'\1="', text)
    return _LINK.sub(lambda match: _link(match[1], _turned(match[2]), match[3], ""), text)


def _link(mark: str, words: str, target: str, back: str) -> str:
    """A link as seen from the root, turned to the site."""
    path, hash_, anchor = target.partition("#")
    if path in _PAGES:
        return f"{mark}[{words}]({back}{_PAGES[path]}{hash_}{anchor})"
    if notebook := _NOTEBOOK.fullmatch(path):
        return f"{mark}[{words}]({back}notebooks/{notebook[1]}.md)"
    if path.startswith("docs/"):
        return f"{mark}[{words}]({back}{target.removeprefix('docs/')})"
    if path.startswith(_BARE):
        return words if words.startswith("`") else f"`{words}`"
    return f"{mark}[{words}]({target})"


def _replay(recording: str) -> str:
    """A page of its own, which plays an example."""
    from jupyter_ddl.recording.lines import read_recording
    from jupyter_ddl.recording.page import page_html

    return page_html(read_recording(ROOT / "docs" / "examples" / recording), speed=_REPLAY_SPEED)


def _magics() -> str:
    from jupyter_ddl.commands.cluster import CLUSTER
    from jupyter_ddl.commands.runs import RUNS
    from jupyter_ddl.verbs.base import distribute_grammar

    distribute = distribute_grammar()
    parts = ["# Magics", "What `--help` prints; Tab completes all of it."]
    parts += _sections(
        (f"{distribute.prog} {verb}", distribute.help_text(verb)) for verb in distribute.commands
    )
    parts += _sections((grammar.prog, grammar.help_text()) for grammar in (CLUSTER, RUNS))
    return "\n\n".join(parts) + "\n"


def _sections(helps: Iterable[tuple[str, str]]) -> list[str]:
    return [f"## `{title}`\n\n```text\n{text.strip()}\n```" for title, text in helps]
