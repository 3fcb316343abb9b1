"""The public address of this repository: what leads there, and the command that sets it.

``python tools/repository.py [https://github.com/OWNER/NAME]`` writes the address (without one, that
of git's remote ``origin``) into ``pyproject.toml``, and leads the README's Binder badge there.  The
page with live cells asks ``pyproject.toml`` when the documents are built.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_GITHUB = re.compile(r"(?:https://|git@|ssh://git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_BADGE = re.compile(r"(\(docs/images/binder_badge\.svg\)\]\()[^)]+\)")
_URLS = re.compile(r'(^\[project\.urls\]\n(?:.+\n)*?Repository = )"[^"]*"', re.MULTILINE)
_NEXT_TABLE = "[project.optional-dependencies]\n"
_FIRST_NOTEBOOK = "lab/tree/notebooks/01_quickstart.ipynb"


def binder_build(folder: Path = ROOT) -> str:
    """Where Binder builds this repository; empty while nobody has said where that is."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "")
    return f"https://mybinder.org/build/gh/{_name(address)}/HEAD" if address else ""


def badge_target(address: str) -> str:
    """The address that opens the first notebook of a repository on Binder."""
    return f"https://mybinder.org/v2/gh/{_name(address)}/HEAD?urlpath={_FIRST_NOTEBOOK}"


def set_address(address: str, folder: Path = ROOT) -> None:
    """Write the address where it is needed; a second time changes nothing.

    Raises
    ------
    ValueError
        The address is not that of a repository on GitHub; nothing is written then.
    """
    target = badge_target(address)
    readme, settings = folder / "README.md", folder / "pyproject.toml"
    line = f'"https://github.com/{_name(address)}"'
    text = settings.read_text(encoding="utf-8")
    if _URLS.search(text):
        text = _URLS.sub(lambda match: match[1] + line, text)
    else:
        text = text.replace(_NEXT_TABLE, f"[project.urls]\nRepository = {line}\n\n{_NEXT_TABLE}", 1)
    settings.write_text(text, encoding="utf-8")
    badge = _BADGE.sub(lambda match: f"{match[1]}{target})", readme.read_text(encoding="utf-8"))
    readme.write_text(badge, encoding="utf-8")


def _name(address: str) -> str:
    """``OWNER/NAME`` of an address as people and git write it."""
    found = _GITHUB.fullmatch(address)
    if found is None:
        raise ValueError(
            f"{address!r} is not the address of a repository on GitHub; "
            "expected https://github.com/OWNER/NAME"
        )
    return found[1]


def _origin() -> str:
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise ValueError("this checkout has no remote 'origin'; give the repository's address")
    return done.stdout.strip()


def main() -> int:
    """Exit status 1 when there is no address to write."""
    try:
        address = sys.argv[1] if len(sys.argv) > 1 else _origin()
        set_address(address)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The badge of README.md opens {badge_target(address)}")
    print("Commit README.md and pyproject.toml, and push them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
