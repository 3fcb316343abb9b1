"""Ask for known advisories of what is installed, of its floors and of the panel's packages.

``python tools/audit.py`` (``make audit``) fails when one is known.  A registry that does not answer
fails nothing: which packages were not audited is told instead, in one line.  ``--sbom FILE`` writes
what is installed as CycloneDX JSON (https://cyclonedx.org) and asks nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Verdict", "floors", "read_pip_audit", "read_yarn_audit"]

ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 180
_OWN = "jupyter-ddl"
_KNOWN = "jinja2==2.10"
"""A registry that answers such questions has advisories of this one."""


@dataclass
class Verdict:
    """What one question came to: advisories as lines, and who got no answer."""

    advisories: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    n_audited: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.sbom is not None:
        options.sbom.parent.mkdir(parents=True, exist_ok=True)
        words = ("cyclonedx_py", "environment", "--of", "JSON", "-o", str(options.sbom))
        subprocess.run([sys.executable, "-m", *words, sys.executable], check=True)
        return
    verdicts = {"panel": _yarn_audit()}
    if _pip_audit([_KNOWN]).advisories:
        verdicts["installed"] = _pip_audit(_installed())
        verdicts["floors"] = _pip_audit(floors((ROOT / "pyproject.toml").read_text()))
    else:
        verdicts["installed, floors"] = Verdict(unanswered=["everything"])
    for what, verdict in verdicts.items():
        print(f"{what}: {verdict.n_audited} audited, {len(verdict.advisories)} advisories")
        if verdict.unanswered:
            print(f"  not audited, as the registry does not say: {', '.join(verdict.unanswered)}")
        for line in verdict.advisories:
            print(f"  {line}")
    sys.exit(any(verdict.advisories for verdict in verdicts.values()))


def floors(pyproject: str) -> list[str]:
    """``name==version`` of every lower bound: what the oldest allowed installation would have."""
    project = tomllib.loads(pyproject)["project"]
    lines = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    found = set()
    for line in lines:
        wanted = Requirement(line)
        lowest = [each.version for each in wanted.specifier if each.operator in (">=", "==", "~=")]
        if lowest and canonicalize_name(wanted.name) != _OWN:
            found.add(f"{wanted.name}=={lowest[0]}")
    return sorted(found)


def _installed() -> list[str]:
    words = [sys.executable, "-m", "pip", "list", "--format", "json", "--exclude-editable"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [f"{each['name']}=={each['version'].partition('+')[0]}" for each in json.loads(listed)]


def _pip_audit(pinned: Iterable[str]) -> Verdict:
    file = ROOT / "out" / "audited.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in pinned))
    words = ("pip_audit", "--no-deps", "--disable-pip", "-f", "json", "-r", str(file))
    return read_pip_audit(_said(sys.executable, "-m", *words)[0])


def read_pip_audit(said: str) -> Verdict:
    """What pip-audit printed; nothing but its JSON is an answer."""
    try:
        entries = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Verdict(unanswered=["everything"])
    verdict = Verdict()
    for entry in entries:
        if "skip_reason" in entry:
            verdict.unanswered.append(entry["name"])
            continue
        verdict.n_audited += 1
        for known in entry["vulns"]:
            fixed = ", ".join(known["fix_versions"]) or "no release yet"
            verdict.advisories.append(
                f"{entry['name']} {entry['version']}: {known['id']}, fixed in {fixed}"
            )
    return verdict


def _yarn_audit() -> Verdict:
    jlpm = Path(sys.executable).with_name("jlpm")
    words = ("npm", "audit", "--all", "--recursive", "--json")
    return read_yarn_audit(*_said(str(jlpm), *words, cwd=ROOT / "labextension"))


def read_yarn_audit(said: str, status: int) -> Verdict:
    """What ``yarn npm audit --json`` printed: a JSON object a line, or why it could not ask."""
    entries = [entry for entry in _objects(said) if "children" in entry]
    if status != 0 and not entries:
        return Verdict(unanswered=["everything"])
    verdict = Verdict(n_audited=1)
    for entry in entries:
        known = entry["children"]
        verdict.advisories.append(
            f"{entry.get('value')}: {known.get('Issue')} ({known.get('Severity')}), "
            f"{known.get('URL')}"
        )
    return verdict


def _objects(said: str) -> Iterator[dict[str, Any]]:
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                yield found


def _said(*words: str, cwd: Path = ROOT) -> tuple[str, int]:
    try:
        done = subprocess.run(
            words, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), -1
    return done.stdout, done.returncode


if __name__ == "__main__":
    main()
