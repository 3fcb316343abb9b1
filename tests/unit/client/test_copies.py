"""Files and blobs of runs whose controller is elsewhere: asked for when they are not here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.client import copies, history
from jupyter_ddl.client.copies import bring_blobs, here, lacks_blobs
from jupyter_ddl.client.files import files_of
from jupyter_ddl.client.history import remove_run
from jupyter_ddl.errors import CapacityError, ControllerError, RunNotFoundError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished, RunSubmitted
from jupyter_ddl.protocol.mirroring import (
    BringBlob,
    BringRunFile,
    CopyState,
    FindBlobs,
    ListRunFiles,
    MissingBlobs,
    RemoveRun,
    RunFilesResult,
    RunMark,
    StoredFile,
)
from jupyter_ddl.protocol.program import CapturedName, Program
from jupyter_ddl.protocol.replies import Accepted, FilesResult
from jupyter_ddl.protocol.requests import ListFiles
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import COPY_NOTE, blob_dirs, ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home

OVER = CopyState(0, 0, is_over=True)


class World:
    """A cluster ``far`` that a mirror stands for, and what that answers."""

    def __init__(self) -> None:
        self.running = {
            "far": SimpleNamespace(name="far", backend="pods", shares_files=False),
            "near": SimpleNamespace(name="near", backend="local", shares_files=True),
        }
        self.asked: list[Any] = []
        self.answer: Callable[[Any], Any] = lambda _: OVER
        self.troubles: list[str] = []
        self.now_s = 0.0

    def ask(self, cluster: str, body: Any) -> Any:
        assert cluster == "far"
        self.asked.append(body)
        return self.answer(body)


@pytest.fixture
def world(home: Home, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(copies, "join_elsewhere", lambda *_, **__: made.troubles)
    monkeypatch.setattr(copies, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    for module in (copies, history):
        monkeypatch.setattr(module, "read_connection", made.running.get)
        monkeypatch.setattr(module, "session", lambda: made)
    monkeypatch.setattr("jupyter_ddl.client.files.read_connection", made.running.get)
    monkeypatch.setattr("jupyter_ddl.client.files.session", lambda: made)
    return made


def _spec(run_id: str, cluster: str = "far", **program: Any) -> RunSpec:
    verb = Map(over="items", element="item", n_items=1)
    return RunSpec(run_id, verb, Program("item", "In [1]", **program), 1, cluster, 1000.0)


def _keep(spec: RunSpec) -> RunSpec:
    private_dir(run_dir(spec.run_id))
    with LedgerWriter.open(ledger_path(spec.run_id), create=True) as writer:
        writer.append([RunSubmitted(spec, 1000.0), RunFinished(1001.0, "complete")])
    if spec.cluster == "far":
        (run_dir(spec.run_id) / COPY_NOTE).touch()
    return spec


def _write(run_id: str, path: str) -> None:
    target = run_dir(run_id) / path
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"content")


def test_what_is_here_is_asked_for_nowhere(world: World) -> None:
    _keep(_spec("r1"))
    _write("r1", "values/a")
    assert here("r1", "values/a").read_bytes() == b"content"
    _keep(_spec("r2", "near"))
    assert not here("r2", "values/a").exists(), "a run of this host has what it has"
    assert world.asked == []


def test_what_is_not_here_is_asked_for_until_it_is(world: World) -> None:
    states = [CopyState(0, 0, False), CopyState(10**6, 3 * 10**6, False), OVER]

    def answer(body: BringRunFile) -> CopyState:
        if len(states) == 1:
            _write(body.run_id, body.path)
        return states.pop(0)

    _keep(_spec("r1"))
    world.answer = answer
    assert here("r1", "values/a").read_bytes() == b"content"
    assert world.asked == 3 * [BringRunFile("r1", "values/a")]


def test_what_takes_long_shows_how_far_it_has_come(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_: Any) -> CopyState:
        world.now_s += 0.4
        n = len(world.asked)
        return OVER if n == 6 else CopyState(n << 20, 6 << 20, False)

    _keep(_spec("r1"))
    world.answer = answer
    here("r1", "checkpoints/0.ckpt")
    line = "checkpoints/0.ckpt of run r1 comes from cluster far: {} of 6 MiB"
    shown = [line.format(f"{n} MiB") for n in (3, 5)]
    assert capsys.readouterr().err == "".join(f"\r{each}" for each in shown) + "\n"


def test_a_copy_that_stands_still_is_given_up(world: World) -> None:
    def answer(_: Any) -> CopyState:
        world.now_s += 20.0
        return CopyState(min(len(world.asked), 3) << 20, 6 << 20, False)

    _keep(_spec("r1"))
    world.answer = answer
    with pytest.raises(ControllerError, match=r"for 60 s, 3\ MiB of 6\ MiB are here"):
        here("r1", "values/a")
    assert len(world.asked) == 7


@pytest.mark.parametrize(
    ("refusal", "kind", "says"),
    [
        (RunNotFoundError("run r1 has no file a"), RunNotFoundError, "^run r1 has no file a"),
        (
            ControllerError("it is away"),
            ControllerError,
            "lies in cluster far, which .* it is away",
        ),
        (CapacityError("values/a has 3 GB"), CapacityError, "^values/a has 3 GB"),
        (Accepted(), ControllerError, "answered Accepted"),
    ],
)
def test_a_refusal_is_told(world: World, refusal: Any, kind: type[Exception], says: str) -> None:
    def answer(_: Any) -> Any:
        if isinstance(refusal, Exception):
            raise refusal
        return refusal

    _keep(_spec("r1"))
    world.answer = answer
    with pytest.raises(kind, match=says):
        here("r1", "values/a")


def test_a_cluster_that_ran_elsewhere_is_joined_and_never_started(world: World) -> None:
    _keep(_spec("r1"))
    del world.running["far"]
    with pytest.raises(ControllerError, match="lies in cluster far, which does not run any more"):
        here("r1", "values/a")
    world.troubles = ["clusters of backend pods are not listed: it is away"]
    with pytest.raises(ControllerError, match="lies in cluster far, clusters of backend pods are"):
        here("r1", "values/a")
    assert world.asked == []


def _captured(size_bytes: int = 10) -> dict[str, Any]:
    return {
        "payload": "a" * 64,
        "buffers": ("b" * 64,),
        "captures": (CapturedName("data", "ndarray", size_bytes),),
    }


def test_what_a_run_was_made_of_is_brought_unless_it_is_here(world: World) -> None:
    digest = put_blob(b"payload", blob_dirs())
    bring_blobs(_keep(_spec("r1", **{**_captured(), "payload": digest})))
    assert world.asked == [BringBlob("b" * 64)]
    bring_blobs(_keep(_spec("r2", "near", **_captured())))
    bring_blobs(_keep(_spec("r3", **_captured(100))), at_most=99)
    assert len(world.asked) == 1


def test_what_the_cluster_elsewhere_has_is_not_lacking(world: World) -> None:
    missing = ["a" * 64, "b" * 64]
    world.answer = lambda body: MissingBlobs(())
    far = _keep(_spec("r1", **_captured()))
    assert not lacks_blobs(far)
    assert world.asked == [FindBlobs(tuple(missing))]
    world.answer = lambda body: MissingBlobs(body.digests[:1])
    assert lacks_blobs(far)
    assert lacks_blobs(_keep(_spec("r2", "near", **_captured())))
    assert len(world.asked) == 2


def test_files_that_came_back_to_a_controller_elsewhere_are_listed_and_fetched_from_there(
    world: World, tmp_path: Any
) -> None:
    stored = tuple(
        StoredFile(path, 7, 10**9) for path in ("files/w0/out/m.pt", "files/w0/b.txt", "logs/w0")
    )

    def answer(body: Any) -> Any:
        match body:
            case ListFiles():
                return FilesResult()
            case ListRunFiles():
                return RunFilesResult(RunMark("r1", 1, False), 0, stored, "home")
            case BringRunFile():
                _write("r1", "files/w0/x")
                (run_dir("r1") / "files/w0/out").mkdir()
                _write("r1", body.path)
        return OVER

    spec = _keep(_spec("r1"))
    (run_dir("r1") / "files").mkdir()
    (run_dir("r1") / "files/w0").mkdir()
    _write("r1", "files/w0/b.txt")
    world.answer = answer
    files = files_of(spec, "")
    assert sorted(each.path for each in files) == ["b.txt", "out/m.pt"]
    (got,) = files.fetch("*.pt", tmp_path)
    assert got.read_bytes() == b"content"
    assert world.asked[-1] == BringRunFile("r1", "files/w0/out/m.pt")


def test_a_run_is_removed_where_it_came_from_as_well(world: World) -> None:
    _keep(_spec("r1"))
    _keep(_spec("r2", "near"))
    for run_id in ("r1", "r2"):
        remove_run(run_id, pytest.fail)
        assert not run_dir(run_id).exists()
    assert world.asked == [RemoveRun("r1")]


def test_where_that_cannot_be_asked_the_copy_goes_with_a_line_on_what_to_do(world: World) -> None:
    def refuse(_: Any) -> Any:
        raise ControllerError("it is away")

    told: list[str] = []
    _keep(_spec("r1"))
    world.answer = refuse
    remove_run("r1", told.append)
    assert told == [
        "run r1 is in cluster far as well, which can't be asked (it is away): if `%runs` shows "
        "it again, delete it again then"
    ]
    assert not run_dir("r1").exists()
