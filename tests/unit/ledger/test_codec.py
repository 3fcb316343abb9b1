"""Messages survive the way to bytes and back, and bad bytes are named."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol import codec
from jupyter_ddl.protocol.events import Notice, TrialCreated
from tests.unit.ledger.event_makers import reported, search_spec, submitted, twenty_events


def test_every_kind_of_event_comes_back_equal() -> None:
    for event in twenty_events():
        assert codec.decode_event(codec.encode_event(event)) == event


def test_non_finite_metrics_stay_what_they_are() -> None:
    event = reported(0, acc=math.nan, loss=-math.inf)
    back = codec.decode_event(codec.encode_event(event))
    assert math.isnan(back.metrics["acc"])
    assert back.metrics["loss"] == -math.inf


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "truncated"),
        (b"\xc1", "invalid opcode"),
        (msgspec.msgpack.encode({"type": "no_such_event"}), "no_such_event"),
        (msgspec.msgpack.encode({"type": "notice", "at_s": "noon", "text": "x"}), r"at_s"),
        (msgspec.msgpack.encode({"type": "notice", "at_s": 1.0}), "text"),
    ],
)
def test_bytes_that_are_no_event_are_refused_with_place_and_cause(data: bytes, cause: str) -> None:
    with pytest.raises(ProtocolError, match=f"an event at record 7 of x failed: .*{cause}"):
        codec.decode_event(data, "record 7 of x")


def test_numbers_are_not_read_from_text() -> None:
    data = msgspec.msgpack.encode(
        {"type": "reported", "trial": "1", "attempt": 1, "step": 1, "metrics": {}, "at_s": 1.0}
    )
    with pytest.raises(ProtocolError, match=r"\$\.trial"):
        codec.decode_event(data)


def test_text_that_utf8_cannot_carry_is_saved_with_question_marks() -> None:
    event = Notice(1.0, "no such file: caf\udce9.csv")
    assert codec.decode_event(codec.encode_event(event)).text == "no such file: caf?.csv"
    assert codec.json_safe(event)["text"] == "no such file: caf?.csv"


def test_an_integer_beyond_64_bits_is_refused_by_the_name_of_its_event() -> None:
    with pytest.raises(ProtocolError, match="encoding TrialCreated failed"):
        codec.encode_event(TrialCreated(0, {"seed": 1 << 70}, 1.0))


def test_json_safe_output_is_strict_json() -> None:
    event = reported(0, acc=math.nan, loss=math.inf, gain=-math.inf, ok=1.5)
    text = json.dumps(codec.json_safe(event), allow_nan=False)
    assert json.loads(text)["metrics"] == {
        "acc": "NaN",
        "loss": "Infinity",
        "gain": "-Infinity",
        "ok": 1.5,
    }


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    fields = msgspec.to_builtins(submitted(search_spec())) | {"colour": "red"}
    assert codec.decode_event(msgspec.msgpack.encode(fields)) == submitted(search_spec())
