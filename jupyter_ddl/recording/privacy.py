"""What a file that is given to others must not tell: secrets, names, folders."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.events.messages import AttemptFinished, FoldFinished, RunSubmitted
from jupyter_ddl.recording.facts import Fact
from jupyter_ddl.spec.run import Provenance, RunSpec
from jupyter_ddl.store.paths import home_dir, runtime_path

__all__ = ["MASK", "Scrubber"]

MASK = "•••"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.I)
_MIN_SECRET = 6
# A name that sounds like a secret's, then the value that is given to it.
_ASSIGNED = re.compile(
    r"(?i)([\w.-]*(?:token|secret|passw(?:or)?d|passwd|api_?key|access_?key|private_?key|credential)"
    r"[\w.-]*[\"']?\s*[:=]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;)\]}&]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{16,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_IN_ADDRESS = re.compile(r"(\w+://)[^\s/@:]+:[^\s/@]+@")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", re.S)
_HOMES = re.compile(r"(?:/home|/Users)/[^/\s\"'<>:,]+|[A-Za-z]:\\Users\\[^\\\s\"'<>:,]+")


class Scrubber:
    """Takes out of text and facts what is nobody else's business.

    Parameters
    ----------
    environ : mapping, optional
        Where values of variables that sound like secrets are looked up.
    places : mapping of str to str, optional
        Words to replace wherever they stand alone, and by what; folders of this user, the user's
        and the host's name by default.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, places: Mapping[str, str] | None = None
    ) -> None:
        values = (os.environ if environ is None else environ).items()
        secrets = {v for name, v in values if _SECRET_NAME.search(name) and len(v) >= _MIN_SECRET}
        self._secrets = sorted(secrets, key=len, reverse=True)
        chosen = _places() if places is None else dict(places)
        words = sorted(chosen, key=len, reverse=True)
        self._chosen = chosen
        pattern = "|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words)
        self._words = re.compile(pattern) if words else None

    def text(self, text: str) -> str:
        """The text without them."""
        if len(text) < _MIN_SECRET and text not in self._chosen:
            return text
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = _PEM.sub(MASK, text)
        text = _ASSIGNED.sub(rf"\g<1>{MASK}", text)
        text = _BEARER.sub(rf"\g<1> {MASK}", text)
        text = _KNOWN.sub(MASK, text)
        text = _IN_ADDRESS.sub(rf"\g<1>{MASK}@", text)
        if self._words is not None:
            text = self._words.sub(lambda found: self._chosen[found[0]], text)
        return _HOMES.sub("~", text)

    def fact(self, fact: Fact) -> Fact:
        """The fact without them, and without what only its own host can use."""
        if isinstance(fact, RunSubmitted):
            fact = msgspec.structs.replace(fact, spec=_bare(fact.spec))
        elif isinstance(fact, FoldFinished):
            fact = msgspec.structs.replace(fact, outcome=b"", file="")
        elif isinstance(fact, AttemptFinished):
            fact = msgspec.structs.replace(fact, values_file=None, result=b"")
        fields = self._walk(msgspec.to_builtins(fact, builtin_types=(bytes,)))
        return msgspec.convert(fields, type(fact), builtin_types=(bytes,))

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item) for item in value]
        return value


def _bare(spec: RunSpec) -> RunSpec:
    """The spec without captured values, and without who, where and with what it was run."""
    program = msgspec.structs.replace(spec.program, payload=None, buffers=(), modules=())
    old = spec.provenance
    notebook = None if old.notebook is None else Path(old.notebook).name
    kept = Provenance(line=old.line, cell=old.cell, notebook=notebook, python=old.python)
    return msgspec.structs.replace(spec, program=program, provenance=kept)


def _places() -> dict[str, str]:
    found = {str(home_dir()): "…", str(runtime_path()): "…"}
    home = Path.home()
    if home != Path(home.anchor):
        found[str(home)] = "~"
    here = socket.gethostname()
    for name in {here, here.partition(".")[0]} - {"localhost", ""}:
        found[name] = "host"
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    # A word of everyday code is nobody's name.
    if len(user) > 3 and user not in ("root", "user", "test", "admin", "jovyan"):
        found[user] = "user"
    return found
