"""What browsers and this package say to each other: types, golden messages, strictness."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.protocol import view_messages as messages

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
UNIONS: dict[str, Any] = {"to_browser": messages.ToBrowser, "from_browser": messages.FromBrowser}

paths = sorted(GOLDEN.glob("*.json"))


def test_types_and_golden_messages_are_those_of_the_structs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_types.py", "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_every_message_has_a_golden_one() -> None:
    kinds = {
        cls.__struct_config__.tag for union in UNIONS.values() for cls in typing.get_args(union)
    }
    assert {path.stem for path in paths} == kinds


@pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)
def test_a_golden_message_is_read_and_written_as_it_is(path: Path) -> None:
    golden = json.loads(path.read_text())
    union = UNIONS[golden["direction"]]
    for example in ("full", "sparse"):
        message = msgspec.json.decode(json.dumps(golden[example]), type=union)
        assert message.__struct_config__.tag == path.stem
        assert json.loads(msgspec.json.encode(message)) == golden[example]
