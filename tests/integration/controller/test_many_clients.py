"""Several clients of one controller, well-behaved ones and others."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import Session, session
from jupyter_ddl.protocol.requests import (
    PROTOCOL_VERSION,
    Body,
    GetStatus,
    Hello,
    Request,
    Scale,
    WatchRun,
)
from jupyter_ddl.store.connection import read_connection
from tests.leaks import Home
from tests.run_tools import SLEEPING, STEPS, assert_clean, start_search, wait_for
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

CELL = """
import sys
sys.path[:0] = {path!r}
from tests.run_tools import STEPS, start_search
from jupyter_ddl.client.clusters import attach_cluster
attach_cluster("test")
print(start_search(STEPS, 24, seed=2).id)
"""


def elsewhere(source: str) -> str:
    """What another process prints."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def second(home: Home) -> Iterator[Session]:
    """Another client in this process, with a connection of its own."""
    session = Session()
    yield session
    links, session._links = session._links, {}
    for link in links.values():
        session._call(link.close(), 5.0)


def test_runs_of_two_processes_share_the_slots(cluster: Cluster) -> None:
    mine = start_search(STEPS, 10_000, seed=1)  # goes on for as long as the other takes to start
    wait_for(mine, lambda seen: seen.counts.running > 0)
    theirs = Run(elsewhere(CELL.format(path=[str(Path(__file__).parents[3])])))
    both = wait_for(
        theirs, lambda seen: seen.counts.running > 0 and mine.snapshot().counts.running > 0
    )
    assert both.state == "running"
    theirs.wait(PATIENCE_S)
    assert_clean(theirs, 24)
    mine.cancel()
    mine.wait(PATIENCE_S)
    assert_clean(mine)
    link = session()._links["test"]
    # Nothing is kept of runs that ended.
    until(lambda: (link._watchers, link._on_closed) == ({}, []), 10.0, "the end of all watches")


def test_with_one_slot_two_runs_take_turns(stopping: Home) -> None:
    start_cluster(n_workers=1, name="test")
    first = start_search(STEPS, 10_000, seed=1)
    wait_for(first, lambda seen: seen.counts.running > 0)
    second = start_search(STEPS, 6, seed=2).wait(PATIENCE_S)
    assert second.state == "complete"
    n_before = first.snapshot().counts.complete
    wait_for(first, lambda seen: seen.counts.complete > n_before)
    first.cancel()
    first.wait(PATIENCE_S)


def test_another_client_stops_a_run_and_both_see_it(cluster: Cluster, second: Session) -> None:
    run = start_search(SLEEPING, 2)
    wait_for(run, lambda seen: seen.counts.running == 2)
    mailbox = second.watch("test", run.id)
    elsewhere(f"from jupyter_ddl.client.run import Run; Run({run.id!r}).cancel('now')")
    run.wait(PATIENCE_S)
    assert run.state == "cancelled"
    last = until(
        lambda: (seen := mailbox.take(0.1)) and seen.is_final and seen, 10.0, "the last push"
    )
    assert last.state == "cancelled"


def frames() -> list[bytes]:
    bodies: list[Body] = [Hello(PROTOCOL_VERSION), GetStatus(), WatchRun("r1"), Scale(-1)]
    return [msgspec.msgpack.encode(Request(number, body)) for number, body in enumerate(bodies)]


def mutated(rng: random.Random, samples: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(samples))
    for _ in range(rng.randrange(1, 6)):
        position = rng.randrange(len(frame))
        match rng.randrange(3):
            case 0:
                frame[position] = rng.randrange(256)
            case 1:
                del frame[position:]
                frame += rng.randbytes(rng.randrange(1, 20))
            case _:
                frame[position:position] = rng.randbytes(3)
    length = rng.choice([len(frame)] * 9 + [rng.randrange(1 << 32)])
    return length.to_bytes(4, "big") + bytes(frame)


def test_frames_that_are_no_requests_disturb_nobody(cluster: Cluster, second: Session) -> None:
    info = read_connection("test")
    assert info is not None
    rng = random.Random(8)
    samples = frames()
    deep = b"\x92" * 100_000
    for number in range(2_000):
        frame = mutated(rng, samples) if number else len(deep).to_bytes(4, "big") + deep
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(info.socket)
            with contextlib.suppress(ConnectionError):
                client.sendall(frame)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
    assert cluster.status().n_slots == 2
    assert second.info("test") == info
    run = start_search(STEPS, 2).wait(PATIENCE_S)
    assert run.state == "complete"


def test_a_client_that_never_reads_is_cut_off(cluster: Cluster) -> None:
    info = read_connection("test")
    assert info is not None
    payload = msgspec.msgpack.encode(Request(1, GetStatus()))
    frame = len(payload).to_bytes(4, "big") + payload
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(info.socket)
        is_cut_off = False
        for _ in range(2_000):
            try:
                client.sendall(frame * 100)
            except ConnectionError:
                is_cut_off = True
                break
        assert is_cut_off
    assert cluster.status().n_slots == 2
    until(lambda: "does not read" in cluster.logs(), 5.0, "the log")
