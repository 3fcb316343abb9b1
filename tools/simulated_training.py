"""A training on 64 GPUs of 8 hosts: a rank dies, and the next round goes on from a checkpoint."""

from __future__ import annotations

import math
import random

from simulated_story import BEGAN_S, Story

from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Failure,
    Notice,
    Outcome,
    RankEnded,
    RankStarted,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.protocol.telemetry import GpuSample, RankSample, Usage, WorkerSample
from jupyter_ddl.verbs.ddp import Ddp

__all__ = ["simulate_training"]

_N_HOSTS = 8
_PER_HOST = 8
_N_RANKS = _N_HOSTS * _PER_HOST
_LOST_RANK = 37
_LOST_STEP = 2_150
_LAST_STEP = 4_000
_EVERY = 50
"""Steps between two reports."""
_SAVED_EVERY = 500
_STEP_S = 0.04
_GIB = 1 << 30
_RUN = "r1121-64gpu"
_CELL = """from jupyter_ddl import checkpoint, prepare, report, resume

model, optimizer, loader = prepare(model, optimizer, loader)
saved = resume()
first = load(saved, model, optimizer) if saved else 0
for step, (x, y) in enumerate(endless(loader), first):
    loss = train_step(model, optimizer, x, y)
    if step % 50 == 0:
        report(step=step, loss=loss)
    if step % 500 == 0:
        checkpoint(step=step, model=model, optimizer=optimizer)
"""


class _Cluster:
    """The machines: GPUs that follow their load, and warm up slowly."""

    def __init__(self, story: Story, chance: random.Random) -> None:
        self._story = story
        self._chance = chance
        self._heat = [38.0 + chance.random() * 4 for _ in range(_N_RANKS)]
        self._memory = [0.6] * _N_RANKS
        self._cpu = [0.4] * _N_HOSTS

    def measure(self, at_s: float, load: float, memory: float, *, gone: int | None = None) -> None:
        """Samples of all hosts; ``load`` and ``memory`` are shares that the GPUs go to."""
        for host in range(_N_HOSTS):
            when_s = round(at_s + 0.02 * host, 3)
            gpus = tuple(
                self._gpu(rank, load, memory, is_gone=rank == gone) for rank in _ranks_of(host)
            )
            self._cpu[host] += 0.5 * ((4 + 40 * load) - self._cpu[host])
            ranks = tuple(
                RankSample(
                    _RUN, 0, rank, 4000 + rank, cpu=round(0.1 + 3 * load, 1), gpus=(_uuid(rank),)
                )
                for rank in _ranks_of(host)
                if memory > 0.1 and rank != gone
            )
            self._story.measure(
                WorkerSample(
                    worker=f"gpu-{host:02}",
                    host=f"gpu-{host:02}",
                    at_s=when_s,
                    cpu=round(self._cpu[host] + self._chance.random() * 3, 1),
                    n_cpus=96.0,
                    memory_bytes=int((90 + 300 * memory) * 16) * _GIB // 16,
                    memory_limit_bytes=1024 * _GIB,
                    received_bytes_s=round(load * 2.1e9 + self._chance.random() * 1e8, -7),
                    sent_bytes_s=round(load * 0.4e9 + self._chance.random() * 1e8, -7),
                    gpus=gpus,
                    ranks=ranks,
                )
            )

    def _gpu(self, rank: int, load: float, memory: float, *, is_gone: bool) -> GpuSample:
        # One host stands in warm air: its GPUs are throttled a little.
        throttled = 0.06 if rank // _PER_HOST == 5 else 0.0
        used = 0.0 if is_gone else max(0.0, load - throttled - self._chance.random() * 0.07)
        self._heat[rank] += 0.15 * (36 + 42 * used + 80 * throttled - self._heat[rank])
        target = 0.01 if is_gone else memory
        self._memory[rank] = target
        return GpuSample(
            uuid=_uuid(rank),
            index=rank % _PER_HOST,
            name="NVIDIA H100 80GB HBM3",
            utilization=round(used, 2),
            memory_used_bytes=round(80 * target * 8) * _GIB // 8,
            memory_total_bytes=80 * _GIB,
            power_w=float(round(75 + 560 * used)),
            temperature_c=float(round(self._heat[rank])),
            sm_clock_mhz=345.0 if used < 0.05 else 1590.0 if throttled else 1980.0,
        )


class _Training:
    def __init__(self, chance: random.Random) -> None:
        self.story = Story()
        self._chance = chance
        self._cluster = _Cluster(self.story, chance)
        self._now_s = BEGAN_S
        self._measured_s = BEGAN_S

    def run(self) -> Story:
        self._begin()
        self._meet(1, 3.6)
        self._train(1, 0, _LOST_STEP)
        self._lose(1)
        self._meet(2, 1.4)
        first = _LOST_STEP // _SAVED_EVERY * _SAVED_EVERY
        self._train(2, first, _LAST_STEP)
        self._end(2)
        return self.story

    def _pass(self, seconds: float, load: float, memory: float, gone: int | None = None) -> None:
        """Let time pass, with a sample every two seconds."""
        until_s = self._now_s + seconds
        while (due_s := max(self._measured_s + 2.0, self._now_s)) <= until_s - 0.2:
            self._measured_s = due_s
            self._cluster.measure(self._measured_s, load, memory, gone=gone)
        self._now_s = round(until_s, 3)

    def _begin(self) -> None:
        program = Program(_CELL, "In [4]")
        line = f"%%distribute ddp -n {_N_RANKS} --gpus-per-rank 1 --name gpt-small"
        spec = RunSpec(
            run_id=_RUN,
            verb=Ddp(_N_RANKS, gpus_per_rank=1),
            program=program,
            seed=0,
            cluster="hall-b",
            created_at_s=BEGAN_S,
            name="gpt-small on 64 GPUs",
            provenance=Provenance(line=line, cell=_CELL),
        )
        self.story.tell(RunSubmitted(spec, BEGAN_S))
        self._pass(0.3, 0.0, 0.01)
        self.story.tell(RunStarted(self._now_s, 1, _N_RANKS, 1, 3100))
        self.story.tell(TrialCreated(0, {}, self._now_s))

    def _meet(self, round_: int, seconds: float) -> None:
        """All ranks of a round begin and find each other."""
        self.story.tell(
            AttemptStarted(0, round_, self._now_s, "gpu-00", 4000, f"round{round_}-0.log", 0)
        )
        for rank in range(_N_RANKS):
            self._now_s = round(self._now_s + 0.002 + 0.004 * self._chance.random(), 3)
            host = f"gpu-{rank // _PER_HOST:02}"
            self.story.tell(
                RankStarted(
                    trial=0,
                    attempt=round_,
                    rank=rank,
                    at_s=self._now_s,
                    worker=host,
                    host=host,
                    pid=4000 + rank,
                    log=f"round{round_}-{rank}.log",
                    log_start=0,
                    device=f"cuda {_uuid(rank)[:12]} NVIDIA H100",
                    world_size=_N_RANKS,
                )
            )
        self._pass(seconds, 0.15, 0.3)

    def _train(self, round_: int, first: int, last: int) -> None:
        for step in range(first + _EVERY, last + 1, _EVERY):
            self._pass(_EVERY * _STEP_S, 0.97, 0.78)
            loss = _loss(step)
            for rank in range(_N_RANKS):
                own = round(loss + 0.08 * self._chance.gauss(0, 1) / math.sqrt(1 + step / 400), 3)
                metrics = {"loss": own}
                if rank == 0:
                    metrics["tokens_per_s"] = float(
                        round(2.61e6 * (0.985 + 0.03 * self._chance.random()), -4)
                    )
                at_s = round(self._now_s + 0.002 * rank, 3)
                self.story.tell(Reported(0, round_, step, metrics, at_s, rank))
            self._now_s = round(self._now_s + 0.002 * _N_RANKS, 3)
            text = f"step {step:>5}  loss {loss:.3f}"
            self.story.say(self._now_s, 0, text, rank=0)
            if step % _SAVED_EVERY == 0:
                self._pass(0.9, 0.2, 0.78)
                file = f"t0-{step}.ckpt"
                self.story.tell(CheckpointSaved(0, round_, step, file, 2_490_000_000, self._now_s))
                self.story.say(self._now_s, 0, f"checkpoint of step {step} saved", rank=0)

    def _lose(self, round_: int) -> None:
        """The kernel of one host kills a process; the others' collectives fail."""
        self._pass(0.7, 0.9, 0.78)
        killed = Failure("crash", "SIGKILL", "the process was killed by SIGKILL", rank=_LOST_RANK)
        self._end_rank(round_, _LOST_RANK, "failed", killed)
        self._pass(1.6, 0.05, 0.78, gone=_LOST_RANK)
        for rank in range(_N_RANKS):
            if rank != _LOST_RANK:
                self._end_rank(round_, rank, "cancelled", None)
        message = f"rank {_LOST_RANK}: the process was killed by SIGKILL"
        failure = Failure("crash", "SIGKILL", message, rank=_LOST_RANK)
        duration_s = round(self._now_s - BEGAN_S, 3)
        self.story.tell(
            AttemptFinished(0, round_, "failed", self._now_s, duration_s, failure=failure)
        )
        text = f"rank {_LOST_RANK} on gpu-04 was killed; the group goes on from its last checkpoint"
        self.story.tell(Notice(self._now_s, text))
        self._pass(2.4, 0.0, 0.01)

    def _end(self, round_: int) -> None:
        self._pass(0.6, 0.3, 0.78)
        for rank in range(_N_RANKS):
            self._end_rank(round_, rank, "complete", None)
        duration_s = round(self._now_s - BEGAN_S, 3)
        self.story.tell(AttemptFinished(0, round_, "complete", self._now_s, duration_s))
        self._pass(0.3, 0.0, 0.01)
        hours = round((self._now_s - BEGAN_S) / 3600, 4)
        usage = Usage(hours * 12 * _N_RANKS, hours * _N_RANKS, (31 * _GIB,) * _N_RANKS)
        self.story.tell(RunFinished(self._now_s, "complete", usage=usage))

    def _end_rank(self, round_: int, rank: int, outcome: Outcome, failure: Failure | None) -> None:
        self._now_s = round(self._now_s + 0.003, 3)
        duration_s = round(self._now_s - BEGAN_S, 3)
        self.story.tell(
            RankEnded(0, round_, rank, outcome, self._now_s, duration_s, failure=failure)
        )


def simulate_training(chance: random.Random) -> Story:
    """Two rounds of a training, three minutes long."""
    return _Training(chance).run()


def _ranks_of(host: int) -> range:
    return range(host * _PER_HOST, (host + 1) * _PER_HOST)


def _uuid(rank: int) -> str:
    return f"GPU-{rank * 2654435761 % (1 << 32):08x}"


def _loss(step: int) -> float:
    return 2.9 + 7.9 * math.exp(-step / 260) + 1.6 * math.exp(-step / 2200) - 0.6
