"""What is given to others tells no secret, no name and no folder of its writer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.protocol.events import Failure, FoldFinished, Notice, RunFinished, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Provenance
from jupyter_ddl.recording.lines import line_of
from jupyter_ddl.recording.write import MASK, Scrubber
from tests.unit.ledger.event_makers import begun, search_spec, started, submitted

HOME, HOMES = "/home", "/Users"

SECRETS = [
    "export API_TOKEN=abc123def",
    "password: 'hunter22 is long'",
    'headers = {"Authorization": "Bearer abcdef0123456789"}',
    "aws AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "sk-proj-0123456789abcdefgh",
    "git clone https://me:s3cr3tpass@example.org/x.git",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    'client(api_key="0123456789")',
]
PARTS = [
    *("abc123def", "hunter22", "abcdef0123456789", "AKIAIOSFODNN7EXAMPLE", "0123456789abcdefghij"),
    *("abcdefghijklmnopqrstuvwxyz", "0123456789abcdefgh", "s3cr3tpass", "eyJzdWIi", "MIIEowIB"),
    "0123456789",
]


@pytest.mark.parametrize(("text", "part"), list(zip(SECRETS, PARTS, strict=True)))
def test_a_secret_is_masked(text: str, part: str) -> None:
    cleaned = Scrubber({}, {}).text(text)
    assert part not in cleaned
    assert MASK in cleaned


def test_the_values_of_secret_variables_are_masked_wherever_they_stand() -> None:
    environ = {"WANDB_API_KEY": "plainlooking", "DB_PASSWORD": "12", "PATH": "/usr/bin"}
    cleaned = Scrubber(environ, {}).text("login with plainlooking and 12 in /usr/bin")
    assert cleaned == f"login with {MASK} and 12 in /usr/bin"


@pytest.mark.parametrize(
    "text",
    [
        "loss 0.123, acc 0.98",
        "keyboard = 1",
        "token_embeddings(8)",
        "n_tokens 5",
        "passed",
        "sk-learn",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Scrubber({}, {}).text(text) == text


def test_folders_and_names_are_replaced_where_they_stand_alone() -> None:
    scrub = Scrubber({}, {"/srv/anna": "~", "anna": "user", "lab7": "host"})
    assert scrub.text("/srv/anna/x.py on lab7 by anna") == "~/x.py on host by user"
    assert scrub.text("hannah, lab77, /srv/annabel") == "hannah, lab77, /srv/annabel"
    assert scrub.text(f"File {HOME}/ben/n.py and {HOMES}/eve/m.py") == "File ~/n.py and ~/m.py"


def test_the_first_record_loses_who_where_and_with_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path))
    provenance = Provenance(
        line="%%distribute search",
        cell="x = 1",
        notebook=f"{HOME}/ben/lessons/one.ipynb",
        user="ben",
        host="lab7",
        packages={"private-package": "1"},
        git_revision="0123abcd",
    )
    program = Program("x = 1", "In [1]", payload="digest", buffers=("a",))
    spec = search_spec(provenance=provenance)
    from msgspec.structs import replace

    fact = Scrubber({}).fact(RunSubmitted(replace(spec, program=program), 1.0))
    assert isinstance(fact, RunSubmitted)
    text = line_of(fact)
    for part in ("ben", "lab7", "private-package", "0123abcd", "digest"):
        assert part not in text
    assert fact.spec.provenance.notebook == "one.ipynb"
    assert fact.spec.provenance.line == "%%distribute search"


def test_pickled_results_stay_at_home() -> None:
    fact = FoldFinished(0, 1, b"key", 1.0, 2.0, b"pickle", "r.pkl")
    scrubbed = Scrubber({}, {}).fact(fact)
    assert isinstance(scrubbed, FoldFinished)
    assert (scrubbed.outcome, scrubbed.file, scrubbed.key) == (b"", "", b"key")


def test_every_text_of_an_event_is_cleaned() -> None:
    failure = Failure("exception", "E", f"no {HOME}/ben/x", f"File {HOME}/ben/y", 3)
    events = [submitted(), started(), begun(0), Notice(1.0, f"at {HOME}/ben")]
    events.append(RunFinished(2.0, "failed", f"see {HOME}/ben/log", failure))
    lines = "".join(line_of(Scrubber({}, {}).fact(event)) for event in events)
    assert "ben" not in lines
    assert lines.count("~") == 4
