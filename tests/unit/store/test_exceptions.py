"""Exceptions arrive in another process as they were raised."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from sklearn.exceptions import UnsetMetadataPassedError

from jupyter_ddl.cell.capture import CellPickler
from jupyter_ddl.store.exceptions import pickled


class KeywordsOnly(ValueError):
    def __init__(self, *, code: int, cause: BaseException | None = None) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.cause = cause


class OwnMessage(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class OwnWay(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __reduce__(self) -> Any:
        return _own_way, (self.code,)


def _own_way(code: int) -> OwnWay:
    return OwnWay(code=code)


def _noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


@pytest.mark.parametrize(
    "error",
    [
        KeywordsOnly(code=3),
        OwnMessage(3),
        OwnWay(code=3),
        ValueError("plain", 3),
        FileNotFoundError(2, "No such file", "here"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        UnsetMetadataPassedError(message="not requested", unrequested_params={"a": 1},
                                 routed_params={"b": 2}),
        _noted(KeywordsOnly(code=4), "look here"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_class_message_and_attributes_are_those_that_were_raised(error: BaseException) -> None:
    found = pickle.loads(pickled({"error": error}))["error"]
    assert type(found) is type(error)
    assert (str(found), found.args) == (str(error), error.args)
    assert vars(found) == vars(error)


def test_one_within_another_arrives_too(tmp_path: Any) -> None:
    inner = KeywordsOnly(code=1)
    outer = KeywordsOnly(code=2, cause=inner)
    outer.itself = outer  # type: ignore[attr-defined]
    found = pickle.loads(pickled(outer))
    assert (found.code, found.cause.code, str(found.cause)) == (2, 1, "code 1")
    group = pickle.loads(pickled(ExceptionGroup("several", [inner, OwnMessage(5)])))
    assert [str(each) for each in group.exceptions] == ["code 1", "code 5"]


def test_what_cannot_travel_is_left_behind_and_nothing_else() -> None:
    error = KeywordsOnly(code=3)
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    error.args = (*error.args, threading.Lock())
    found = pickle.loads(pickled(error))
    assert (type(found), found.code, hasattr(found, "lock")) == (KeywordsOnly, 3, False)
    assert found.args[0] == "code 3"
    assert "lock" in found.args[1]
    plain = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    plain.lock = threading.Lock()  # type: ignore[attr-defined]
    assert str(pickle.loads(pickled(plain))) == str(plain)


def test_an_exception_of_the_notebook_travels_to_the_ranks() -> None:
    import io

    stream = io.BytesIO()
    CellPickler(stream, {}, None).dump({"last_error": KeywordsOnly(code=7)})
    found = pickle.loads(stream.getvalue())["last_error"]
    assert (type(found), found.code) == (KeywordsOnly, 7)
