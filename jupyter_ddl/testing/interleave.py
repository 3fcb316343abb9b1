"""Runs many small worlds, each with its own random order of everything that can happen.

One interleaving is one world: one or two runs of up to four trials, the rounds of one rank group of
up to three ranks, the fits of one cell, or the persistent groups of one cluster, on a few workers,
from the first record to the last, with losses, late and doubled messages, stops, scaling, full
disks and restarts at random times, and all promises checked at the end.
``python -m jupyter_ddl.testing.interleave --count 10000``
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

import msgspec

from jupyter_ddl.protocol.prices import Budget
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.sampling import PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.testing.dispatcher import Faults
from jupyter_ddl.testing.fit_world import fit_story
from jupyter_ddl.testing.group_world import group_story
from jupyter_ddl.testing.world import DEEDS, World
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

__all__ = ["SCENARIOS", "main", "random_spec", "random_world"]

_RARE = (0.0, 0.0, 0.05, 0.3)
_PROGRAM = Program("", "In [1]")
_PORTION = 250
"""Worlds that one process plays at a time."""


def random_world(seed: int, kind: str) -> World:
    """The world of a seed; ``kind`` is ``search``, ``map``, ``training`` or ``outliving``."""
    rng = Random(seed)
    n_runs = 1 + (rng.random() < 0.3)
    specs = [random_spec(rng, kind, f"r{number}") for number in range(n_runs)]
    faults = Faults(
        lost_chunk=rng.choice(_RARE),
        doubled_chunk=rng.choice(_RARE),
        lost_signal=rng.choice(_RARE),
        deaf=rng.choice(_RARE),
        never_begun=rng.choice(_RARE),
        swallowed=rng.choice(_RARE),
        fails=rng.choice(_RARE),
        crashes=rng.choice(_RARE),
        disk_full=rng.choice(_RARE) / 3,
        slow=rng.choice(_RARE),
        long=rng.choice(_RARE),
    )
    deeds = [rng.choice(DEEDS) for _ in range(rng.randrange(4))]
    workers = [rng.randint(1, 2) for _ in range(rng.randint(1, 3))]
    fails = 0.3 if rng.random() < 0.05 else 0.0
    is_slow = rng.random() < 0.2
    return World(
        seed,
        specs,
        faults,
        workers=workers,
        deeds=deeds,
        sampler_fails=fails,
        is_slow=is_slow,
    )


def random_spec(rng: Random, kind: str, run_id: str) -> RunSpec:
    """A small run of a kind."""
    limits = Limits(
        timeout_s=rng.choice((None, None, None, 5.0)),
        max_own_failures=rng.choice((1, 3)),
        max_evictions=rng.choice((1, 50)),
        admission_timeout_s=rng.choice((None, None, 30.0)),
        budget=_random_budget(rng),
    )
    verb: VerbSpec
    if kind == "search":
        is_own = rng.random() < 0.25
        verb = Search(
            "loss",
            "min",
            rng.randint(1, 4),
            {"x": Uniform(0.0, 1.0)},
            sampler=SamplerSpec("own:Sampler") if is_own else SamplerSpec(),
            pruner=PrunerSpec(rng.choice(("none", "none", "asha", "median"))),
            max_parallel=rng.choice((None, 1, 2)),
            window=rng.choice((1, 2, 4)),
            ranks_per_trial=rng.choice((1, 1, 1, 2)),
        )
    elif kind == "map":
        verb = Map("items", "item", rng.randint(1, 4), max_parallel=rng.choice((None, 2)))
    elif kind == "outliving":  # a training whose ranks go on without one of them
        verb = Ddp(
            rng.choice((3, 3, 4)),
            min_ranks=rng.choice((None, 2)),
            strategy="ps-async",
            gpus_per_rank=0,
        )
    else:
        n_ranks = rng.randint(1, 3)
        verb = Ddp(n_ranks, min_ranks=rng.choice((None, 1)), gpus_per_rank=0)
    return RunSpec(run_id, verb, _PROGRAM, rng.randrange(8), "test", 0.0, limits=limits)


def _random_budget(rng: Random) -> Budget | msgspec.UnsetType:
    """In one of eight runs some seconds of a slot; takes nothing from ``rng``."""
    twin = Random()
    twin.setstate(rng.getstate())
    seconds = twin.choice((*[None] * 21, 1.0, 5.0, 20.0))
    return msgspec.UNSET if seconds is None else Budget(seconds / 3600.0, "cpuh")


def _scenario(kind: str) -> Callable[[int], tuple[int, int]]:
    def play(seed: int) -> tuple[int, int]:
        world = random_world(seed, kind)
        world.run()
        return world.n_handled, world.n_steps

    return play


SCENARIOS: dict[str, Callable[[int], tuple[int, int]]] = {
    **{kind: _scenario(kind) for kind in ("search", "map", "training", "outliving")},
    "fit": fit_story,
    "group": group_story,
}
"""By kind: plays the world of a seed; returns events that machines took, and steps or requests."""


class _Played(NamedTuple):
    """What has come of some worlds."""

    n_events: int = 0
    n_steps: int = 0
    failures: tuple[str, ...] = ()


def _play(kind: str, keep_going: bool, seeds: range) -> _Played:
    n_events = n_steps = 0
    failures = []
    for seed in seeds:
        try:
            handled, stepped = SCENARIOS[kind](seed)
        except AssertionError as error:
            if not keep_going:
                raise
            failures.append(f"{kind}: {error}\n")
            continue
        n_events += handled
        n_steps += stepped
    return _Played(n_events, n_steps, tuple(failures))


def _play_all(kind: str, seeds: range, keep_going: bool, n_jobs: int) -> Iterator[_Played]:
    """The worlds of these seeds, in portions as they come to their ends."""
    play = partial(_play, kind, keep_going)
    portions = [seeds[at : at + _PORTION] for at in range(0, len(seeds), _PORTION)]
    if n_jobs == 1:
        yield from map(play, portions)
        return
    with ProcessPoolExecutor(n_jobs, get_context("spawn")) as processes:
        yield from processes.map(play, portions)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="jupyter_ddl.testing.interleave", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="interleavings of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--kind", choices=sorted(SCENARIOS), action="append")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play them")
    parser.add_argument(
        "--keep-going", action="store_true", help="tell all failures, not the first"
    )
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: give a number of processes from 1")
    n_failed = 0
    for kind in options.kind or SCENARIOS:
        n_events = n_steps = 0
        began_s = time.perf_counter()
        seeds = range(options.seed, options.seed + options.count)
        for played in _play_all(kind, seeds, options.keep_going, options.jobs):
            n_events += played.n_events
            n_steps += played.n_steps
            n_failed += len(played.failures)
            sys.stdout.writelines(played.failures)
        took_s = time.perf_counter() - began_s
        sys.stdout.write(
            f"{kind}: {options.count} interleavings in {took_s:.1f} s, "
            f"{options.count / took_s:.0f}/s; {n_events} events, {n_events / took_s:.0f}/s; "
            f"{n_steps} steps of the clock, {n_steps / took_s:.0f}/s\n"
        )
        sys.stdout.flush()
    return 1 if n_failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
