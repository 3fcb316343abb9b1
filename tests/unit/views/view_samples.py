"""Snapshots as real runs produce them, for the tests of the views."""

from __future__ import annotations

import math
import random

import msgspec

from jupyter_ddl.protocol.events import Failure, HangVerdict
from jupyter_ddl.protocol.snapshot import (
    BestTrial,
    Counts,
    EncodedSnapshot,
    RankRow,
    RestartRow,
    RunSnapshot,
    TrialRow,
    TrialStateName,
)
from jupyter_ddl.protocol.verb import load_verb

NOW_S = 1_700_000_000.0


def encoded(snapshot: RunSnapshot) -> EncodedSnapshot:
    """As a controller pushes it."""
    return EncodedSnapshot(
        snapshot.run_id, snapshot.seq, snapshot.state, msgspec.json.encode(snapshot)
    )


VALUE_ERROR = Failure(
    kind="exception",
    type_name="ValueError",
    message="Expected more than 1 value per channel when training, got input size [1, 128]",
    traceback=(
        "Traceback (most recent call last):\n"
        '  File "In [12]", line 9, in <module>\n'
        "    loss = train_one_epoch(model, loader, lr)\n"
        '  File "In [7]", line 4, in train_one_epoch\n'
        "    out = model(batch.to(device, non_blocking=True)) if use_amp else model(batch)\n"
        "ValueError: Expected more than 1 value per channel when training, got input size [1, 128]"
    ),
    line=9,
)


def _row(number: int, state: TrialStateName, rng: random.Random) -> TrialRow:
    value = 0.6 + 0.35 * (1 - math.exp(-number / 12)) * rng.random()
    lr = 10 ** rng.uniform(-4, -1)
    finished = state in {"complete", "pruned", "failed"}
    step = 9 if state == "complete" else rng.randint(1, 6)
    return TrialRow(
        number=number,
        state=state,
        params={
            "lr": lr,
            "width": rng.choice([64, 128, 256]),
            "activation": rng.choice(["relu", "gelu", "silu"]),
        },
        value=value if state == "complete" else None,
        step=step,
        metrics={"val_acc": value, "loss": 1.2 - value},
        attempts=2 if number == 21 else 1,
        evictions=1 if number == 21 else 0,
        worker=f"w{number % 2}",
        started_at_s=NOW_S - 300 + number * 6,
        duration_s=rng.uniform(8, 95) if finished else None,
        failure=VALUE_ERROR if state == "failed" else None,
    )


def search(
    n_trials: int = 40,
    n_started: int = 26,
    *,
    running: frozenset[int] = frozenset({24, 25}),
    pruned: frozenset[int] = frozenset({5, 13, 18}),
    failed: frozenset[int] = frozenset({7}),
) -> RunSnapshot:
    """A search in the middle of its work."""
    rng = random.Random(7)
    rows = []
    for number in range(n_started):
        state: TrialStateName = "complete"
        if number in running:
            state = "running"
        elif number in pruned:
            state = "pruned"
        elif number in failed:
            state = "failed"
        rows.append(_row(number, state, rng))
    done = [row for row in rows if row.state == "complete" and row.value is not None]
    best = max(done, key=lambda row: row.value or 0.0)
    best_curve: list[tuple[int, float]] = []
    for count, row in enumerate(done, 1):
        value = row.value or 0.0
        if not best_curve or value > best_curve[-1][1]:
            best_curve.append((count, value))
    stride = max(1, len(done) // 300)
    shown = sorted(
        {row.number: row for row in (best, *rows[-20:], *(r for r in rows if r.failure))}.values(),
        key=lambda row: row.number,
    )
    return RunSnapshot(
        seq=317,
        run_id="r-20260115-7f3a",
        name="width and rate",
        verb="search",
        can=load_verb("search").can,
        nouns=load_verb("search").nouns,
        state="running",
        cluster="local",
        created_at_s=NOW_S - 312,
        started_at_s=NOW_S - 310,
        n_trials=n_trials,
        counts=Counts(
            waiting=n_trials - n_started,
            running=len(running),
            complete=len(done),
            pruned=len(pruned),
            failed=len(failed),
        ),
        metric="val_acc",
        mode="max",
        sampler="tpe",
        pruner="asha",
        best=BestTrial(number=best.number, params=best.params, value=best.value or 0.0),
        rows=tuple(shown),
        curve=tuple((row.number, row.value or 0.0) for row in done)[::stride],
        best_curve=tuple(best_curve),
        trials_per_s=0.083,
        ends_at_s=NOW_S + 171.0,
        n_evictions=1,
        notices=("Worker w1 was lost at 12:03:11; trial 21 starts again from its checkpoint.",),
    )


def mapped() -> RunSnapshot:
    """A map over 500 items."""
    rows = tuple(
        TrialRow(
            number=number,
            state="running" if number > 351 else "failed" if number == 344 else "complete",
            params={},
            attempts=1,
            worker=f"w{number % 2}",
            duration_s=None if number > 351 else 0.8 + number % 7 / 10,
            failure=VALUE_ERROR if number == 344 else None,
        )
        for number in range(340, 356)
    )
    return RunSnapshot(
        seq=9,
        run_id="r-20260115-88b1",
        name="",
        verb="map",
        can=load_verb("map").can,
        nouns=load_verb("map").nouns,
        state="running",
        cluster="local",
        created_at_s=NOW_S - 130,
        started_at_s=NOW_S - 130,
        n_trials=500,
        counts=Counts(waiting=144, running=4, complete=351, failed=1),
        rows=rows,
        trials_per_s=2.7,
        ends_at_s=NOW_S + 54.8,
    )


def group(n_ranks: int = 4, n_listed: int = 4) -> RunSnapshot:
    """A ddp run in its third round: a rank was killed, then one hung."""
    rng = random.Random(3)
    steps = range(0, 1800, 10)
    noise = [rng.gauss(0, 0.02) for _ in steps]
    loss = tuple((s, 2.2 * math.exp(-s / 500) + 0.1 + e) for s, e in zip(steps, noise, strict=True))
    acc = tuple(
        (s, 1 - math.exp(-s / 400) * 0.8 + e / 4) for (s, _), e in zip(loss, noise, strict=True)
    )
    return RunSnapshot(
        seq=412,
        run_id="r1121-k3f9a",
        name="digits, four ranks",
        verb="ddp",
        can=load_verb("ddp").can,
        nouns=load_verb("ddp").nouns,
        state="running",
        cluster="local",
        created_at_s=NOW_S - 95,
        started_at_s=NOW_S - 94,
        n_trials=1,
        counts=Counts(running=1),
        ranks=tuple(
            RankRow(
                rank=rank,
                host=f"10.0.0.{1 + rank // 2}",
                worker=f"w{rank}",
                device=f"cuda:{rank % 2}",
                pid=4711 + rank,
                state="running",
                step=1790 - (rank == 3),
                metrics={"loss": 0.161 + rank / 500, "acc": 0.9876},
            )
            for rank in range(n_listed)
        ),
        world_size=n_ranks,
        round=3,
        max_rounds=4,
        restarts=(
            RestartRow(1, 1, "died by SIGKILL", 120, is_over=True),
            RestartRow(2, 3, "kept the others waiting", 980, is_over=True),
        ),
        checkpoint_step=1700,
        series={"acc": acc, "train_loss": loss},
        metrics=("train_loss", "acc"),
        n_metrics=2,
        hang=HangVerdict(
            0,
            2,
            3,
            NOW_S - 40,
            "rank 3 made no step for 62 s: it is at line 14 of the cell, time.sleep(1000); ranks "
            "0, 1 and 2 wait for it in all_reduce (line 19)",
            14,
            stacks_file="stacks/round-2.txt",
        ),
        notices=(
            "rank 3 made no step for 62 s: it is at line 14 of the cell, time.sleep(1000); ranks "
            "0, 1 and 2 wait for it in all_reduce (line 19)",
            "checkpoint at step 990 was half written; the one of step 980 is used",
        ),
    )


RANK_FAILURE = Failure(
    kind="exception",
    type_name="ZeroDivisionError",
    message="rank 1: division by zero (1 more rank failed)",
    traceback="Traceback (most recent call last):\n  In [3], line 7\n    x = 1 / 0",
    line=7,
    rank=1,
)
