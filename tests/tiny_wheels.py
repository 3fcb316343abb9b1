"""Makes wheels of a few lines without a build tool, and installs them with the real pip."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

__all__ = ["install", "make_wheel"]


def make_wheel(directory: Path, name: str, version: str, source: str = "") -> Path:
    """A wheel of one module that has a ``__version__``."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"__version__ = {version!r}\n{source}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    told = [f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items()]
    record = "".join([*told, f"{info}/RECORD,,\n"])
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(found).decode().rstrip('=')}"


def install(what: Path, target: Path) -> None:
    """``pip install --target``, in the place of what was there."""
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
    subprocess.run(
        [*command, "--no-index", "--no-deps", "--no-build-isolation", "--upgrade",
         "--target", str(target), str(what)],
        check=True,
        timeout=120,
        capture_output=True,
    )  # fmt: skip
