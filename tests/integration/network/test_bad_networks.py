"""Every run ends right whatever the network does, and says for what it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jupyter_ddl.client.api import train
from tests.integration.network.conftest import Apart
from tests.integration.network.told import Told
from tests.integration.network.wire import Link
from tests.integration.network.works import WORKS, Kept, Search, Work
from tests.run_tools import outcomes
from tests.until import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

CUT = Link(is_cut=True)
MEETING = """
import torch, torch.distributed as dist
given = torch.ones(1)
dist.all_reduce(given)
"""
BAD = {
    "30 % lost": Link(lost=0.3),
    "500 ms late": Link(late_s=0.5),
    "trickle": Link(bytes_per_s=20_000),
}

PAIRS = ("controller-scheduler", "scheduler-worker", "controller-worker", "worker-other")
MOST_NEEDED = {
    "search": "scheduler-worker",
    "training": "worker-other",
    "fits": "scheduler-worker",
    "cells": "scheduler-worker",
}
"""Controllers call ranks of workers that have files of their own by way of the scheduler."""
SILENT_SCHEDULER = "the scheduler is connected but silent for"
TOLD = {
    ("controller-scheduler", 10): SILENT_SCHEDULER,
    ("controller-scheduler", 60): SILENT_SCHEDULER,
    ("scheduler-worker", 60): "nothing was heard of worker tcp://",
}
"""Of a cut that lasts so many seconds.  Ten are too few to be told of a worker's silence."""
RANKS_WAIT_S = 5.0
"""Of a cut of ten seconds or more between ranks that meet at every step."""


def passes(seconds: float) -> Iterator[float]:
    """Moments of a time that is to pass: how long the network stays as it is, is the test."""
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < seconds:
        yield passed_s
        time.sleep(0.1)


def end_with_workers(apart: Apart, work: Work, told: Told) -> None:
    """Workers that end by themselves are started anew meanwhile."""
    ending = Kept(work.end)
    while ending.is_going:
        apart.foreign.replace_ended()
        told.look()
        ending.wait(0.1)
    ending.result()
    told.assert_over()


def during(apart: Apart, pair: str, link: Link, seconds: float) -> None:
    with apart.wire.between(*apart.pair(pair), link):
        for _ in passes(seconds):
            pass


def test_a_search_goes_on_through_all_that_a_network_does_for_a_while(apart: Apart) -> None:
    search = Search()
    search.begin(20)
    for link in BAD.values():
        during(apart, "scheduler-worker", link, 3)
    for pair in PAIRS:
        during(apart, pair, CUT, 1)
    search.end()
    assert outcomes(search.run, "evicted") == []


def test_a_worker_that_is_cut_off_is_named_and_the_controller_connects_again(apart: Apart) -> None:
    search = Search()
    search.begin(16)
    with apart.wire.between(*apart.pair("scheduler-worker"), CUT):
        until(lambda: any("nothing was heard of worker" in n for n in search.notices()), 20)
        status = apart.cluster.status()
        assert status.state == "degraded"
        assert status.trouble.startswith("nothing was heard of worker tcp://")
        assert apart.hosts["worker"].address in status.trouble
    until(lambda: any(n.endswith("is heard again") for n in search.notices()), 20)
    assert apart.cluster.status().state == "ready"
    assert outcomes(search.run, "evicted") == []
    assert apart.wire.reset(*apart.pair("controller-scheduler")) > 0
    search.end()


# -- the whole matrix: some forty minutes ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 60])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", WORKS)
def test_whatever_is_cut_off_for_a_time_every_run_ends_right(
    apart: Apart, kind: str, pair: str, seconds: int
) -> None:
    work = WORKS[kind]()
    work.begin(8)
    told = Told(apart.cluster, work)
    with apart.wire.between(*apart.pair(pair), CUT):
        for _ in passes(seconds):
            apart.foreign.replace_ended()
            told.look()
    if (pair, seconds) in TOLD:
        told.assert_told(TOLD[pair, seconds])
    if (kind, pair) == ("training", "worker-other"):
        told.assert_silent_for(RANKS_WAIT_S)
    if (kind, pair) == ("cells", "worker-other"):
        told.assert_told("the network is cut")
    end_with_workers(apart, work, told)


@pytest.mark.slow
def test_hosts_that_never_see_each_other_cost_their_ranks_nothing(apart: Apart) -> None:
    with apart.wire.between(*apart.pair("worker-other"), CUT):
        run = train(MEETING, 2, namespace={}, max_restarts=0, wait=False)
        until(lambda: run.snapshot().restarts, 120, "a round that is given up")
    run.wait(100)
    assert run.state == "complete", run.snapshot().reason
    assert any("the network is cut" in notice for notice in run.snapshot().notices)
    assert outcomes(run, "failed") == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*BAD, "reset", "half-open", "half-open there"])
@pytest.mark.parametrize("kind", WORKS)
def test_whatever_the_network_is_like_every_run_ends_right(
    apart: Apart, kind: str, fault: str
) -> None:
    """On the way that this kind of work needs most."""
    one, other = apart.pair(MOST_NEEDED[kind])
    work = WORKS[kind]()
    work.begin(8)
    told = Told(apart.cluster, work)
    if fault in BAD:
        with apart.wire.between(one, other, BAD[fault]):
            end_with_workers(apart, work, told)
        return
    ended = {
        "reset": lambda: apart.wire.reset(one, other),
        "half-open": lambda: apart.wire.half_open(one, other),
        "half-open there": lambda: apart.wire.half_open(other, one),
    }
    assert ended[fault]() > 0
    end_with_workers(apart, work, told)
