"""Bytes that are no message: one kind of error, whatever is wrong with them."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.codec import decode_event, decoder_of, encode_event
from jupyter_ddl.protocol.events import AttemptFinished, Notice, RunFinished, RunSubmitted
from jupyter_ddl.protocol.requests import Request
from jupyter_ddl.protocol.telemetry import Usage
from jupyter_ddl.testing.interleave import random_spec


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 5000,  # a list in a list in a list
        b"\x81\xa4type\xa2\xc3\x28",  # text that is none
        b"\xdd\xff\xff\xff\xff",  # four billion items, it says
        msgspec.msgpack.encode({"id": 1, "body": {"type": "hello"}})[:-1],
    ],
)
def test_they_are_refused_by_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="this is no request: "):
        decoder_of(Request, "this is no request")(data)
    with pytest.raises(ProtocolError):
        decode_event(data)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_time_that_browsers_have_no_number_for_is_refused(number: float) -> None:
    submitted = RunSubmitted(random_spec(Random(0), "map", "r1"), 1.0)
    spec = msgspec.structs.replace(submitted.spec, created_at_s=number)
    for event in (
        msgspec.structs.replace(submitted, spec=spec),
        Notice(number, "hello"),
        AttemptFinished(0, 1, "complete", 1.0, number),
        RunFinished(1.0, "complete", usage=Usage(1.0, number)),
    ):
        with pytest.raises(ProtocolError, match="Expected `float`"):
            decode_event(encode_event(event))


@pytest.mark.parametrize("verb", [None, 3, "search", [], {1: 2}, {}, {"type": 3}, {"type": "no"}])
def test_a_run_whose_verb_is_none_that_there_is_is_refused(verb: object) -> None:
    spec = random_spec(Random(0), "search", "r1")
    tree = msgspec.msgpack.decode(encode_event(RunSubmitted(spec, 1.0)))
    tree["spec"]["verb"] = verb
    with pytest.raises(ProtocolError, match=r"\$\.spec"):
        decode_event(msgspec.msgpack.encode(tree))
