"""Secrets of many kinds are masked, ordinary text stays, and what may be one is told."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.protocol.events import TrialCreated
from jupyter_ddl.recording import secrets
from jupyter_ddl.recording.page import export_run
from jupyter_ddl.recording.secrets import MASK, SecretMasker, sounds_secret
from tests.unit.ledger.event_makers import begun, started, submitted
from tests.unit.recording.canaries import CANARIES
from tests.unit.recording.test_recording_files import ledger

VARIABLE = {"MY_TOKEN": CANARIES[-1][2]}
ALL = "\n".join(f"{line}\n{VARIABLE['MY_TOKEN']}" for _, line, _ in CANARIES)


def saved_run(run_id: str, printed: str) -> str:
    """A run that has printed this so far."""
    folder = ledger(
        run_id, [submitted(), started(), TrialCreated(0, {"lr": 1.0}, 1002.0), begun(0)]
    )
    (folder / "logs" / "r1-1-1.log").write_text(printed)
    return run_id


@pytest.fixture(params=["alone", "with the scanner's patterns"])
def scanner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "alone":
        monkeypatch.setattr(secrets, "_of_scanner", tuple)
    else:
        pytest.importorskip("detect_secrets")
        assert secrets.has_scanner()


@pytest.mark.usefixtures("scanner")
@pytest.mark.parametrize(("name", "line", "secret"), CANARIES, ids=[each[0] for each in CANARIES])
def test_no_part_of_a_secret_is_left(name: str, line: str, secret: str) -> None:
    del name
    for text in (line or secret, f"  before\n{line or secret}\nafter", ALL):
        masked = SecretMasker(VARIABLE).text(text)
        assert secret not in masked
        assert secret[8:24] not in masked, "nor a large part of it"
        assert MASK in masked


@pytest.mark.usefixtures("scanner")
@pytest.mark.parametrize(
    "text",
    [
        "tokenizer = AutoTokenizer.from_pretrained('gpt2')",
        "max_new_tokens=256, n_tokens: 5, pad_token_id=0",
        "model(x, key_padding_mask=mask)",
        "key = 3",
        "author = 'me'",
        "token = os.environ['HF_TOKEN']",
        "password = getpass.getpass()",
        "git@github.com:a/b.git and ssh://git@example.org/x",
        "http://localhost:8888/lab?reset",
        "basic training, bearer of news",
        "login successful",
        "auth = None",
        "for token in tokens: print(token)",
        "step 1000 loss 0.25",
        "0123abcd" * 2,
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    masker = SecretMasker({})
    assert masker.text(text) == text
    assert masker.masked == ()


def test_a_variable_of_the_environment_is_masked_in_all_its_forms() -> None:
    value = 'pa"ss wörd/1'
    masker = SecretMasker({"DB_PASSWORD": value, "PATH": "/usr/bin", "HF_TOKEN_PATH": "/x/token"})
    forms = (
        value,
        json.dumps(value),
        repr(value),
        quote(value, safe=""),
        base64.b64encode(value.encode()).decode(),
    )
    for form in forms:
        assert masker.text(f"see {form}").replace('"', "").replace("'", "") == f"see {MASK}"
    assert masker.text("see /usr/bin and /x/token") == "see /usr/bin and /x/token"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("API_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWD", True),
        ("PGPASSWORD", True),
        ("SENTRY_DSN", True),
        ("ENCRYPTION_KEY", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("HF_TOKEN_PATH", False),
        ("MAX_TOKENS", False),
        ("OMP_NUM_THREADS", False),
        ("KEYBOARD", False),
        ("AUTHOR", False),
    ],
)
def test_names_of_secrets(name: str, expected: bool) -> None:
    assert sounds_secret(name) is expected


def test_what_was_masked_is_counted_by_kind_each_secret_once() -> None:
    masker = SecretMasker({})
    key = CANARIES[7][2]
    for _ in range(3):
        masker.text(f"got {key}")
    assert masker.masked == ("1 token of Hugging Face",)
    masker.text("got " + key[:-4] + "zzzz")
    assert masker.masked == ("2 tokens of Hugging Face",)


def test_what_looks_random_is_a_doubt() -> None:
    masker = SecretMasker({})
    masker.doubt("digest " + "0123456789abcdef" * 2 + " and aXb2cYd4eZf6gWh8iVj0 here", "Printed")
    masker.doubt(
        "test_a_long_snake_case_name and /usr/lib/python3.11/site-packages/x.py", "Printed"
    )
    assert masker.doubts == ("0123… (32 characters, Printed)", "aXb2… (20 characters, Printed)")


def test_a_key_that_is_printed_line_by_line_is_masked_as_one_and_strict_refuses_doubts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    random_text = "Zk3" + "qP8vX1" * 2 + "mNb7Rt5Yw"
    pem = CANARIES[-3]
    cut = "x" * 485 + f" password = {CANARIES[0][2]}{'y' * 200}"  # at 500 characters
    run_id = saved_run("r1", f"{pem[1]}\nlast line\n{cut}\n")
    said = export_run(run_id, tmp_path / "one.jsonl")
    text = (tmp_path / "one.jsonl").read_text()
    assert "last line" in text
    assert not [line for line in pem[1].splitlines()[2:-2] if line in text]
    assert CANARIES[0][2] not in text
    assert "masked: " in said
    assert "1 private key" in said
    pytest.importorskip("detect_secrets")
    assert export_run(run_id, tmp_path / "two.jsonl", strict=True)
    run_id = saved_run("r2", f"got {random_text}\n")
    assert "1 string that may be a secret stayed" in export_run(run_id, tmp_path / "three.jsonl")
    with pytest.raises(
        RecordingError, match=r"1 string may be a secret: Zk3q… \(24 characters, Pri"
    ):
        export_run(run_id, tmp_path / "four.jsonl", strict=True)
    assert not (tmp_path / "four.jsonl").exists()
    monkeypatch.setattr(secrets, "_of_scanner", tuple)
    with pytest.raises(RecordingError, match="pip install"):
        export_run(run_id, tmp_path / "five.jsonl", strict=True)
