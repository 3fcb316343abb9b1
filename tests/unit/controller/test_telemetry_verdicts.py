"""What is concluded from samples, and what is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.controller.verdicts import WorkerEvidence, verdicts
from jupyter_ddl.protocol.telemetry import GpuProcess, WorkerSample
from tests.unit.controller.telemetry_samples import GIB, gpu, rank, sample

HELD = rank(gpus=(gpu().uuid,))


def after(*samples: WorkerSample, run_id: str = "") -> tuple[str, ...]:
    evidence = WorkerEvidence()
    for each in samples:
        evidence.observe(each)
    return verdicts([evidence], run_id)


def idle(at_s: float, utilization: float = 0.0) -> WorkerSample:
    return sample("w0", at_s, gpus=(gpu(utilization=utilization),), ranks=(HELD,))


def test_a_gpu_that_its_rank_leaves_idle_is_named_with_the_time() -> None:
    assert after(*(idle(100.0 + s) for s in range(30))) == ()
    assert after(*(idle(100.0 + s) for s in range(41))) == ("GPU 0 of w0 idle for 40 s",)


def test_a_gpu_that_nobody_holds_may_be_idle() -> None:
    quiet = (sample("w0", 100.0 + s, gpus=(gpu(utilization=0.0),)) for s in range(60))
    assert after(*quiet) == ()


def test_a_rank_holds_the_gpu_that_its_process_has_memory_on() -> None:
    mine = rank(3)
    theirs = gpu(utilization=0.0, processes=(GpuProcess(1),))
    own = gpu(utilization=0.0, processes=(GpuProcess(mine.pid),))
    assert after(*(sample("w0", 100.0 + s, gpus=(theirs,), ranks=(mine,)) for s in range(50))) == ()
    assert after(*(sample("w0", 100.0 + s, gpus=(own,), ranks=(mine,)) for s in range(50)))


def test_a_gpu_whose_utilization_is_not_told_is_not_called_idle() -> None:
    part = gpu(utilization=None, parent_uuid="GPU-0")
    seen = (sample("w0", 100.0 + s, gpus=(part,), ranks=(HELD,)) for s in range(60))
    assert after(*seen) == ()


def test_a_moment_of_work_does_not_end_an_idle_time_and_more_does() -> None:
    blip = [idle(100.0 + s, 0.9 if s == 20 else 0.0) for s in range(40)]
    assert after(*blip) == ("GPU 0 of w0 idle for 39 s",)
    worked = [idle(100.0 + s, 0.9 if 20 <= s < 25 else 0.0) for s in range(40)]
    assert after(*worked) == ()


def test_after_a_silence_evidence_begins_anew() -> None:
    assert after(*(idle(100.0 + s) for s in range(29)), idle(200.0)) == ()


def test_many_idle_gpus_are_counted_rather_than_listed() -> None:
    workers = []
    for number in range(10):
        evidence = WorkerEvidence()
        for s in range(40):
            evidence.observe(
                sample(f"w{number}", 100.0 + s, gpus=(gpu(utilization=0.0),), ranks=(HELD,))
            )
        workers.append(evidence)
    found = verdicts(workers)
    assert len(found) == 4
    assert found[-1] == "7 more GPUs idle for 30 s or longer"


def test_ranks_that_wait_for_their_loader_make_a_run_input_bound() -> None:
    def seen(at_s: float, loader: float, used: float) -> WorkerSample:
        waits = rank(gpus=(gpu().uuid,), loader_share=loader)
        return sample("w0", at_s, gpus=(gpu(utilization=used),), ranks=(waits,))

    steady = [seen(100.0 + s, 0.95, 0.12) for s in range(20)]
    assert after(*steady, run_id="run-1") == ("input-bound: GPU 12 %, loader 95 %",)
    assert after(*steady) == ("run-1 is input-bound: GPU 12 %, loader 95 %",)
    assert after(*steady[:10], run_id="run-1") == ()
    assert after(*(seen(100.0 + s, 0.95, 0.8) for s in range(20)), run_id="run-1") == ()
    assert after(*(seen(100.0 + s, 0.1, 0.12) for s in range(20)), run_id="run-1") == ()
    assert after(*steady, run_id="run-2") == ()


def test_a_cpu_run_is_input_bound_by_its_loader_alone() -> None:
    ranks = (rank(0, loader_share=0.8), rank(1, loader_share=0.9))
    seen = (sample("w0", 100.0 + s, ranks=ranks) for s in range(20))
    assert after(*seen, run_id="run-1") == ("input-bound: loader 85 % (2 ranks)",)


def test_memory_near_the_limit_is_told_when_it_lasts() -> None:
    def full(at_s: float, used: float) -> WorkerSample:
        return sample("w0", at_s, memory_bytes=int(used * 16 * GIB))

    text = "w0 uses 95 % of its memory (15.2 GiB of 16 GiB)"
    assert after(*(full(100.0 + s, 0.95) for s in range(10))) == (text,)
    assert after(*(full(100.0 + s, 0.95) for s in range(3))) == ()
    assert after(*(full(100.0 + s, 0.8) for s in range(10))) == ()


def test_a_lost_gpu_comes_before_all_else() -> None:
    gone = gpu(1, None, state="lost")
    seen = [
        sample("3", 100.0 + s, gpus=(gpu(utilization=0.0), gone), ranks=(HELD,)) for s in range(40)
    ]
    assert after(*seen) == ("GPU 1 of worker 3 is lost", "GPU 0 of worker 3 idle for 39 s")


def test_an_nvml_that_does_not_answer_is_told() -> None:
    seen = [sample("w0", 100.0 + s, gpu_state="n/a: NVML does not answer") for s in range(6)]
    assert after(*seen) == ("NVML of w0 does not answer for 5 s",)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=80))
def test_idle_is_said_only_of_gpus_that_were_idle_for_long(used: list[float]) -> None:
    samples = [idle(100.0 + number, each) for number, each in enumerate(used)]
    told = after(*samples)
    busy_since_s = [number for number, each in enumerate(used) if each > 0.05]
    runs_of_work = any(
        all(used[n + k] > 0.05 for k in range(4)) for n in busy_since_s if n + 4 <= len(used)
    )
    if len(used) <= 30 or (runs_of_work and max(busy_since_s) > len(used) - 28):
        assert told == ()
    if not busy_since_s and len(used) > 30:
        assert told == (f"GPU 0 of w0 idle for {len(used) - 1} s",)
