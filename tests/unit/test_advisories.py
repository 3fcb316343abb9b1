"""The audit of dependencies: an advisory fails it, silence does not and is told."""

from __future__ import annotations

import json
from pathlib import Path

from audit import Verdict, floors, read_pip_audit, read_yarn_audit

_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_floors_are_the_oldest_versions_that_may_be_installed() -> None:
    text = """
[project]
dependencies = ["a>=1.2,!=1.3", "b", "c[x]>=2,<3"]
optional-dependencies = {d = ["d>=4", "jupyter_ddl[e]"], e = ["e==5"]}
"""
    assert floors(text) == ["a==1.2", "c==2", "d==4", "e==5"]


def test_floors_of_servers_are_above_their_known_advisories() -> None:
    found = dict(line.split("==") for line in floors(_PYPROJECT.read_text()))
    assert (found["jupyter_server"], found["jupyterlab"]) == ("2.20", "4.5.9")


def test_an_advisory_is_a_line_and_a_skipped_package_is_told() -> None:
    said = {
        "dependencies": [
            {"name": "good", "version": "1", "vulns": []},
            {
                "name": "bad",
                "version": "2",
                "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}],
            },
            {"name": "unknown", "skip_reason": "Dependency not found"},
        ],
        "fixes": [],
    }
    verdict = read_pip_audit(json.dumps(said))
    assert verdict.advisories == ["bad 2: PYSEC-1, fixed in 2.1"]
    assert (verdict.n_audited, verdict.unanswered) == (2, ["unknown"])


def test_no_answer_is_no_advisory() -> None:
    for said in ("", "Traceback: ConnectionError", "[]"):
        assert read_pip_audit(said).unanswered == ["everything"]
    refused = "➤ YN0035: The remote server failed to provide the requested resource\n"
    for said in (refused, '{"type": "error", "data": "RequestError"}\n', "{\n"):
        assert read_yarn_audit(said, 1).unanswered == ["everything"]


def test_an_advisory_of_the_panel_is_a_line() -> None:
    known = {"Issue": "Regular expression", "Severity": "high", "URL": "https://example.org/1"}
    said = json.dumps({"value": "semver", "children": known}) + "\n"
    assert read_yarn_audit(said, 1).advisories == [
        "semver: Regular expression (high), https://example.org/1"
    ]
    assert read_yarn_audit("", 0) == Verdict(n_audited=1)
