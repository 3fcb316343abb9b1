"""What Dask would unpickle of others' messages comes as strangers: nothing of it is executed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_ddl.driving.unpickling import Stranger, loads
from jupyter_ddl.errors import LaunchError


class Evil:
    """Touches a file where it is unpickled."""

    def __init__(self, call: Any, *args: Any) -> None:
        self._reduced = call, args

    def __reduce__(self) -> Any:
        return self._reduced


class WithState:
    def __init__(self) -> None:
        self.secret = 1


def test_plain_values_and_known_errors_arrive_as_they_are() -> None:
    value = {"a": [1, 2.5, None, True, b"x", "y"], "b": ({1}, frozenset({2}), 1 + 2j)}
    for protocol in (4, 5):
        assert loads(pickle.dumps(value, protocol)) == value
    assert loads(pickle.dumps(bytes)) is bytes, "Dask looks up how to read a type"
    told = loads(pickle.dumps(LaunchError("no plugin")))
    assert isinstance(told, LaunchError)
    assert told.message == "no plugin"
    assert repr(loads(pickle.dumps(OSError(2, "gone")))) == "FileNotFoundError(2, 'gone')"


@pytest.mark.parametrize(
    "evil",
    [
        lambda path: Evil(os.system, f"touch {path}"),
        lambda path: Evil(eval, f"__import__('os').mkdir({str(path)!r})"),
        lambda path: Evil(exec, f"import os; os.mkdir({str(path)!r})"),
        lambda path: Evil(path.write_text, "x"),
        lambda path: [1, {"deep": Evil(getattr, Evil(__import__, "os"), "system")}],
        lambda path: ValueError(Evil(os.mkdir, str(path))),
        lambda path: OrderedDict(a=Evil(os.mkdir, str(path))),
    ],
)
def test_nothing_is_executed(tmp_path: Path, evil: Any) -> None:
    target = tmp_path / "touched"
    data = pickle.dumps(evil(target))
    loads(data)
    assert not target.exists()
    if b"getattr" not in data:
        pickle.loads(data)
        assert target.exists(), "the same does harm elsewhere"


def test_strangers_say_what_they_are_and_take_whatever_a_pickle_gives_them() -> None:
    for value in (WithState(), np.arange(3), Path("x"), OrderedDict(a=1)):
        told = loads(pickle.dumps(value))
        assert isinstance(told, Stranger)
    assert "WithState" in repr(type(loads(pickle.dumps(WithState()))))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x05", b"garbage", pickle.dumps([1])[:-2], b"Pid\n.", b"\x80\x04\x8c\x03abc\x93."],
)
def test_what_is_no_pickle_raises_nothing(data: bytes) -> None:
    assert isinstance(loads(data), Stranger)


def test_a_class_is_not_changed_by_a_pickle() -> None:
    # A class in place of an instance, and then a state for it.
    for name in ("ValueError", "set"):
        data = b"cbuiltins\n" + name.encode() + b"\n(dS'spoilt'\nI1\nsb."
        loads(data)
        assert not hasattr(ValueError, "spoilt")
    loads(b"cjupyter_ddl.errors\nLaunchError\n(dS'spoilt'\nI1\nsb.")
    assert not hasattr(LaunchError, "spoilt")


_OF_DASK = """
import os, pickle, sys
from distributed.client import Client
from distributed.core import clean_exception
from distributed.protocol import core, to_serialize
from distributed.protocol.serialize import ToPickle
from jupyter_ddl.driving.unpickling import unpickle_nothing

class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[1],)

frames = [
    [bytes(each) for each in core.dumps(message)]
    for message in (
        {"x": ToPickle(Evil())},
        {"x": to_serialize(Evil())},
        {"x": to_serialize([b"1", Evil()])},
        {"x": to_serialize({"a": Evil()})},
    )
]
honest = {"x": to_serialize(b"plain"), "y": to_serialize((b"1", 2))}
plain = [bytes(each) for each in core.dumps(honest)]
unpickle_nothing()
for each in frames:
    core.loads(each)
assert core.loads(plain) == {"x": b"plain", "y": (b"1", 2)}, core.loads(plain)
try:
    clean_exception(pickle.dumps(Exception(Evil())), pickle.dumps(Evil()))
except AssertionError:
    pass
import warnings
warnings.simplefilter("ignore")
try:
    Client._default_event_handlers["warn"]((0, {"message": pickle.dumps(Evil())}))
except TypeError:
    pass
assert not os.path.exists(sys.argv[1])
try:
    raise RuntimeError("as a worker tells it")
except RuntimeError as error:
    from distributed.core import error_message
    told = error_message(error)
sent = [bytes(each) for each in core.dumps(told)]
told = core.loads(sent)
kind, error, trace = clean_exception(told["exception"], told["traceback"])
assert str(error) == "as a worker tells it", error
print("nothing was executed")
"""


def test_dask_itself_executes_nothing_of_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OF_DASK, str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "nothing was executed\n", done.stderr[-2000:]
