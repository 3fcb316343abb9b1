"""Builds the JupyterLab extension where its bundle is missing or older than its sources.

``python tools/build_labextension.py [--link | --test | --check]`` needs what the extra ``panel``
brings.  ``--link`` lets this environment's JupyterLab read the bundle from the checkout; ``--test``
runs the tests of the TypeScript instead; ``--check`` only tells, by the exit status, whether the
bundle is as its sources.  ``hatch_build.py`` uses it for wheels, sdists and editable
installations.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["BUNDLE", "build", "is_fresh"]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "labextension"
BUNDLE = ROOT / "jupyter_ddl" / "labextension"

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
_TIMEOUT_S = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--link", action="store_true")
    either.add_argument("--test", action="store_true")
    either.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        sys.exit(not is_fresh())
    if options.test:
        _install()
        print(_call("jlpm", "test", cwd=SOURCES))
        return
    if not is_fresh():
        build()
    if options.link and not _is_linked():
        _call("jupyter", "labextension", "develop", "--overwrite", str(ROOT), cwd=ROOT)


def is_fresh() -> bool:
    """Whether the bundle was built from the sources that are here."""
    return _STAMP.is_file() and _STAMP.read_text() == _digest()


def build() -> None:
    """Build the bundle, whether it is needed or not."""
    digest = _digest()
    _install()
    _call("jlpm", "build", cwd=SOURCES)
    _STAMP.write_text(digest)


def _install() -> None:
    print("Fetching what the panel is built with: a minute the first time …", flush=True)
    _call("jlpm", "install", "--immutable", cwd=SOURCES)


def _digest() -> str:
    """One for all that the bundle is made of: names and contents."""
    found = hashlib.blake2b(digest_size=16)
    paths = {path for pattern in _PATTERNS for path in ROOT.glob(pattern) if path.is_file()}
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if "__tests__" not in name:
            found.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest() + "\n"


def _call(name: str, *words: str, cwd: Path) -> str:
    """What a command of this Python's environment, else of the path, has said."""
    path = _path()
    command = shutil.which(name, path=path)
    if command is None:
        sys.exit(f"the panel can't be built without {name}: pip install 'jupyter_ddl[panel]'")
    done = subprocess.run(
        [command, *words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{name} {' '.join(words)} failed in {cwd}:\n{done.stdout[-4000:]}")
    return done.stdout


def _path() -> str:
    """Where commands are looked for."""
    own, given = str(Path(sys.executable).parent), os.environ.get("PATH", "")
    found = find_spec("jupyter_builder")
    # pip builds in isolation with the interpreter of the environment that it installs into, whose
    # commands (an older JupyterLab's `jlpm`) can't import what the build has been given; the
    # commands that can are the first ones of the path.
    is_isolated = (
        found is not None
        and found.origin is not None
        and not Path(found.origin).is_relative_to(sys.prefix)
    )
    return os.pathsep.join([given, own] if is_isolated else [own, given])


def _is_linked() -> bool:
    installed = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "jupyter_ddl"
    return installed.is_symlink() and installed.resolve() == BUNDLE.resolve()


if __name__ == "__main__":
    main()
