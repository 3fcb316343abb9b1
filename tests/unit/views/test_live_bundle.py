"""The joiner: one text out of many modules that does the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jupyter_ddl.plugins import VERBS
from jupyter_ddl.recording.lines import read_recording
from jupyter_ddl.recording.page import page_html
from jupyter_ddl.views.bundle import LIVE_DIR, BundleError, join_modules, live_css, live_esm
from tests.unit.views.node_tools import node


def write(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder


def result_of(folder: Path, source: str) -> str:
    (folder / "joined.mjs").write_text(source)
    (folder / "call.mjs").write_text('import it from "./joined.mjs";\nconsole.log(it());\n')
    return subprocess.run(
        [node(), str(folder / "call.mjs")], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


def test_joined_modules_do_what_they_did_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        a='export const NAME = "a";\nconst own = 1;\nexport function twice(x) { return 2 * x; }\n',
        b='import { NAME as n, twice } from "./a.js";\nconst own = 2;\n'
        "export class Box { get() { return n + twice(own); } }\n",
        main='import { Box } from "./b.js";\nimport {\n  twice,\n} from "./a.js";\n'
        "export default () => new Box().get() + twice(10);\n",
    )
    assert result_of(tmp_path, join_modules(tmp_path, "main.js")) == "a420"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('import it from "./a.js";\nexport default it;\n', "is a form that the joiner lacks"),
        ('export * from "./a.js";\nexport default 1;\n', "is a form that the joiner lacks"),
        ("const x = 1;\n", "0 default exports"),
        ('import { y } from "./main.js";\nexport default y;\n', "in a circle"),
    ],
)
def test_what_can_not_be_joined_is_refused(tmp_path: Path, source: str, message: str) -> None:
    write(tmp_path, a="export const y = 1;\n", main=source)
    with pytest.raises(BundleError, match=message):
        join_modules(tmp_path, "main.js")


def test_neither_the_live_view_nor_the_panel_knows_a_verb() -> None:
    """They ask a run for its capabilities and nouns; its verb is only shown and filtered by."""
    panel = Path(__file__).parents[3] / "labextension" / "src"
    sources = [*LIVE_DIR.glob("*.js"), *panel.rglob("*.ts"), *panel.rglob("*.tsx")]
    own = [each for each in sources if "__tests__" not in each.parts and each.stem != "protocol"]
    assert len(own) > 40
    # These have other meanings here: kinds of messages, types of fields, shapes of values.
    names = "|".join(VERBS.built_in.keys() - {"run", "search", "map"})
    asked = re.compile(
        rf"\bverb\W*[=!]==?|(?:includes|has|switch) ?\([\w.]*verb|[\"'](?:{names})[\"']"
    )
    found = [
        f"{path.name}:{n}: {line.strip()}"
        for path in own
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asked.search(line)
    ]
    assert found == []


def test_the_view_is_one_module_without_addresses(tmp_path: Path) -> None:
    joined = live_esm()
    path = tmp_path / "live.mjs"
    path.write_text(joined)
    subprocess.run([node(), "--check", str(path)], check=True, timeout=120)
    assert len(joined.encode()) < 200_000
    assert len(live_css().encode()) < 24_000
    outside = joined.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside
    assert "import " not in outside


def test_nothing_is_lost_with_indentation_and_comments() -> None:
    for path in LIVE_DIR.glob("*.js"):
        lines = path.read_text().split("\n")
        assert [line for line in lines if line.count("`") % 2] == [], path.name
    comments = re.findall(r"^\s*(?:/?\*|// (?!\w+\.js$)).*", live_esm(), re.MULTILINE)
    assert comments == []


def test_the_styles_are_one_text_of_all_parts() -> None:
    joined = live_css()
    assert "@import" not in joined
    parts = [path.read_text() for path in (LIVE_DIR / "styles").iterdir()]
    assert [part[:80] for part in parts if joined.count(part) != 1] == []


def test_no_module_writes_markup() -> None:
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    forbidden += ("new Function", "DOMParser", "setHTML", "createContextualFragment")
    for path in LIVE_DIR.glob("*.js"):
        source = path.read_text()
        assert [word for word in forbidden if word in source] == [], path.name


def test_a_page_of_five_hundred_trials_is_small() -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "search-500-trials.jsonl.gz"
    assert len(page_html(read_recording(example)).encode()) < 300_000
