"""A search of 500 trials on 32 slots: ASHA stops most, some fail, a worker is lost for a while."""

from __future__ import annotations

import heapq
import math
import random
from typing import NamedTuple

from simulated_story import BEGAN_S, Story

from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Failure,
    Notice,
    Outcome,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, Provenance, RunSpec
from jupyter_ddl.protocol.sampling import PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, Uniform
from jupyter_ddl.protocol.telemetry import RankSample, Usage, WorkerSample
from jupyter_ddl.studies.pruners import Bracket
from jupyter_ddl.verbs.search import Search

__all__ = ["simulate_search"]

_N_TRIALS = 500
_N_WORKERS = 8
_SLOTS = 4
"""Of each worker."""
_N_EPOCHS = 27
_ETA = 3
_MIN_STEPS = 1
_LOST_WORKER = 5
_LOST_AT_S = 46.0
_BACK_AT_S = 71.0
_MEMORY_BYTES = 16 << 30
_RUN = "r1121-500tr"
_CELL = """from jupyter_ddl import choice, loguniform, report, uniform

lr = loguniform(1e-4, 1e-1, default=1e-2)
width = choice(64, 128, 256, 512, 1024)
dropout = uniform(0.0, 0.6)
model = make_model(width, dropout)
for epoch in range(1, 28):
    loss = train_epoch(model, lr)
    acc = validate(model)
    print(f"epoch {epoch}: loss {loss:.3f}, acc {acc:.4f}")
    report(step=epoch, acc=acc)
"""
_TRACEBACK = """In [7], line 8
      for epoch in range(1, 28):
----> 8   loss = train_epoch(model, lr)
FloatingPointError: the loss is not finite any more"""


class _Trial(NamedTuple):
    number: int
    params: dict[str, ParamValue]
    best: float
    """What its accuracy goes to."""
    epoch_s: float
    learns_in: float
    """Epochs until two thirds of it are learned."""
    diverges_at: int
    """Epoch in which it fails; 0: never."""


class _Attempt(NamedTuple):
    trial: _Trial
    number: int
    worker: int
    began_s: float


class _Search:
    def __init__(self, chance: random.Random) -> None:
        self.story = Story()
        self._chance = chance
        self._bracket = Bracket(_ETA, _MIN_STEPS)
        self._free = [_SLOTS] * _N_WORKERS
        self._running: dict[int, _Attempt] = {}
        self._again: list[_Trial] = []
        self._attempts: dict[int, int] = {}
        self._n_created = 0
        self._n_events = 0
        # Time, order of making, what happens, to which trial's attempt, in which epoch.
        self._agenda: list[tuple[float, int, str, _Attempt | None, int]] = []
        self._cpu = [0.1] * _N_WORKERS

    def run(self) -> Story:
        self._begin()
        self._plan(0.5, "measure")
        self._plan(_LOST_AT_S, "lose")
        self._plan(_BACK_AT_S, "back")
        self._fill(0.4)
        while self._agenda:
            now_s, _, what, attempt, epoch = heapq.heappop(self._agenda)
            if what == "epoch" and attempt is not None:
                self._epoch(now_s, attempt, epoch)
            elif what == "measure":
                self._measure(now_s)
            elif what == "lose":
                self._lose(now_s)
            elif what == "back":
                self._free[_LOST_WORKER] = _SLOTS
                self._fill(now_s)
            if self.story.state.n_finished == _N_TRIALS:
                self._end(now_s)
                break
        return self.story

    def _plan(
        self, at_s: float, what: str, attempt: _Attempt | None = None, epoch: int = 0
    ) -> None:
        self._n_events += 1
        heapq.heappush(self._agenda, (round(at_s, 3), self._n_events, what, attempt, epoch))

    def _begin(self) -> None:
        space: dict[str, Distribution] = {
            "lr": Uniform(1e-4, 1e-1, 1e-2, log=True),
            "width": Choice((64, 128, 256, 512, 1024), 64),
            "dropout": Uniform(0.0, 0.6),
        }
        line = (
            f"%%distribute search --metric acc --trials {_N_TRIALS} --sampler random --pruner asha"
        )
        verb = Search(
            "acc",
            "max",
            _N_TRIALS,
            space,
            SamplerSpec("random"),
            PrunerSpec("asha"),
            window=64,
        )
        spec = RunSpec(
            run_id=_RUN,
            verb=verb,
            program=Program(_CELL, "In [7]"),
            seed=7,
            cluster="hall-a",
            created_at_s=BEGAN_S,
            name="500 small networks",
            limits=Limits(max_own_failures=1),
            provenance=Provenance(line=line, cell=_CELL),
        )
        n_slots = _N_WORKERS * _SLOTS
        self.story.tell(RunSubmitted(spec, BEGAN_S))
        self.story.tell(RunStarted(BEGAN_S + 0.3, 1, n_slots, n_slots, 3100))

    def _fill(self, now_s: float) -> None:
        """Begin trials wherever a slot is free."""
        while max(self._free) > 0 and (self._again or self._n_created < _N_TRIALS):
            worker = max(range(_N_WORKERS), key=lambda each: (self._free[each], -each))
            trial = self._again.pop(0) if self._again else self._created(now_s)
            number = self._attempts[trial.number] = self._attempts.get(trial.number, 0) + 1
            attempt = _Attempt(trial, number, worker, now_s)
            self._free[worker] -= 1
            self._running[trial.number] = attempt
            log = f"w{worker}-{trial.number}.log"
            at_s = BEGAN_S + now_s
            self.story.tell(
                AttemptStarted(
                    trial.number, number, at_s, f"worker-{worker}", 5000 + worker, log, 0
                )
            )
            self._plan(now_s + trial.epoch_s * self._pace(), "epoch", attempt, 1)

    def _created(self, now_s: float) -> _Trial:
        chance = self._chance
        lr = float(f"{10 ** chance.uniform(-4, -1):.3g}")
        width = chance.choice((64, 128, 256, 512, 1024))
        dropout = round(chance.uniform(0.0, 0.6), 3)
        best = 0.958 - 0.036 * (math.log10(lr) + 2.45) ** 2 - 0.28 * (dropout - 0.22) ** 2
        best += 0.008 * math.log2(width / 64) - 0.003 * math.log2(width / 64) ** 1.6
        unstable = lr * width > 12 and chance.random() < 0.35
        trial = _Trial(
            self._n_created,
            {"lr": lr, "width": width, "dropout": dropout},
            max(0.12, best + chance.gauss(0, 0.006)),
            1.2 + 0.2 * math.log2(width / 64) + 0.6 * chance.random(),
            2.0 + 2.5 * chance.random() ** 2,
            chance.randint(1, 4) if unstable else 0,
        )
        self._n_created += 1
        self.story.tell(TrialCreated(trial.number, trial.params, BEGAN_S + now_s))
        return trial

    def _pace(self) -> float:
        return 0.9 + 0.2 * self._chance.random()

    def _epoch(self, now_s: float, attempt: _Attempt, epoch: int) -> None:
        """An epoch of a trial is over, unless its worker was lost meanwhile."""
        trial = attempt.trial
        if self._running.get(trial.number) is not attempt:
            return
        at_s = BEGAN_S + now_s
        if epoch == trial.diverges_at:
            text = "the loss is not finite any more"
            failure = Failure("exception", "FloatingPointError", text, _TRACEBACK, 8)
            self._finish(now_s, attempt, "failed", None, failure)
            return
        reached = trial.best * (1 - 0.75 * math.exp(-epoch / trial.learns_in))
        reached += self._chance.gauss(0, 0.005)
        acc = round(min(0.995, max(0.05, reached)), 4)
        loss = round(3.2 * (1 - acc) ** 0.8, 3)
        self.story.tell(
            Reported(trial.number, attempt.number, epoch, {"acc": acc, "loss": loss}, at_s)
        )
        self.story.say(at_s, trial.number, f"epoch {epoch}: loss {loss:.3f}, acc {acc:.4f}")
        if not self._bracket.climb(trial.number, epoch, acc):
            self._finish(now_s, attempt, "pruned", acc, None)
        elif epoch == _N_EPOCHS:
            self._finish(now_s, attempt, "complete", acc, None)
        else:
            self._plan(now_s + trial.epoch_s * self._pace(), "epoch", attempt, epoch + 1)

    def _finish(
        self, now_s: float, attempt: _Attempt, outcome: Outcome, value: float | None,
        failure: Failure | None,
    ) -> None:  # fmt: skip
        number = attempt.trial.number
        del self._running[number]
        if outcome == "evicted":
            self._bracket.forget(number)
            self._again.append(attempt.trial)
        else:
            self._bracket.keep(number)
            self._free[attempt.worker] += 1
        duration_s = round(now_s - attempt.began_s, 3)
        self.story.tell(
            AttemptFinished(
                number, attempt.number, outcome, BEGAN_S + now_s, duration_s, value, failure=failure
            )
        )
        if outcome != "evicted":
            self._fill(now_s)

    def _lose(self, now_s: float) -> None:
        lost = [each for each in self._running.values() if each.worker == _LOST_WORKER]
        for attempt in lost:
            self._finish(now_s, attempt, "evicted", None, None)
        self._free[_LOST_WORKER] = 0
        text = f"worker-{_LOST_WORKER} was lost; its {len(lost)} trials are tried again elsewhere"
        self.story.tell(Notice(BEGAN_S + now_s, text))
        self._fill(now_s)

    def _measure(self, now_s: float) -> None:
        for worker in range(_N_WORKERS):
            if worker == _LOST_WORKER and _LOST_AT_S <= now_s < _BACK_AT_S:
                continue
            own = [each for each in self._running.values() if each.worker == worker]
            self._cpu[worker] += 0.6 * (0.94 * len(own) + 0.1 - self._cpu[worker])
            ranks = tuple(
                RankSample(_RUN, each.trial.number, 0, 5000 + worker, cpu=0.9) for each in own
            )
            self.story.measure(
                WorkerSample(
                    worker=f"worker-{worker}",
                    host=f"node-{worker // 2}",
                    at_s=round(BEGAN_S + now_s, 2),
                    cpu=round(min(_SLOTS, self._cpu[worker] + 0.2 * self._chance.random()), 2),
                    n_cpus=float(_SLOTS),
                    memory_bytes=(700 + 950 * len(own) + self._chance.randint(0, 90)) << 20,
                    memory_limit_bytes=_MEMORY_BYTES,
                    ranks=ranks,
                )
            )
        self._plan(now_s + 2.0, "measure")

    def _end(self, now_s: float) -> None:
        hours = round(now_s * _N_WORKERS * _SLOTS / 3600, 4)
        at_s = BEGAN_S + round(now_s + 0.2, 3)
        self.story.tell(RunFinished(at_s, "complete", usage=Usage(hours, 0.0)))


def simulate_search(chance: random.Random) -> Story:
    """A search with the pruner's own rungs, two to three minutes long."""
    return _Search(chance).run()
