"""Which steps are recorded, what becomes of a trace, and what is told where there is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.protocol.codec import decode_event, encode_event
from jupyter_ddl.protocol.events import Notice, ProfileTaken
from jupyter_ddl.ranks import profiling
from jupyter_ddl.ranks.profiling import StepProfiler, costliest

torch = pytest.importorskip("torch")


class Training:
    """Steps of a small model under a profiler of ``n_wanted`` steps."""

    def __init__(self, folder: Path, n_wanted: int) -> None:
        self.sent: list[Any] = []
        self.n_slowed = 0
        self.weights = torch.nn.Parameter(torch.ones(8, 8))
        self.optimizer = torch.optim.SGD([self.weights], lr=0.1)
        self.profiler = StepProfiler(
            n_wanted, (0, 2, 1), folder, self.sent.append, self._step_is_slow
        )
        self.profiler.begin()

    def _step_is_slow(self) -> None:
        self.n_slowed += 1

    def run(self, n_steps: int) -> list[Any]:
        for _ in range(n_steps):
            self.optimizer.zero_grad()
            (self.weights @ self.weights).sum().backward()
            self.optimizer.step()
        self.profiler.close()
        return self.sent


def test_the_steps_behind_a_warm_up_become_a_trace_and_the_others_cost_nothing(
    tmp_path: Path,
) -> None:
    training = Training(tmp_path, 2)
    (taken,) = training.run(9)
    assert isinstance(taken, ProfileTaken)
    assert (taken.trial, taken.attempt, taken.rank, taken.n_steps) == (0, 2, 1, 2)
    assert training.n_slowed == 4  # the first, the warm-up, two recorded ones
    path = tmp_path / "profiles" / taken.file
    assert path.stat().st_size == taken.size_bytes
    names = [each["name"] for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 2
    products = next(each for each in taken.operations if each.name == "aten::mm")
    assert products.n_calls == 2 * 3  # forward, and backward to both factors
    assert sum(each.cpu_s for each in taken.operations) <= taken.cpu_s
    assert decode_event(encode_event(taken)) == taken


def test_an_attempt_that_ends_early_has_the_trace_of_what_it_did(tmp_path: Path) -> None:
    (taken,) = Training(tmp_path, 50).run(5)
    assert taken.n_steps == 3


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_too_few_steps_are_told_in_a_line(tmp_path: Path, n_steps: int) -> None:
    (notice,) = Training(tmp_path, 4).run(n_steps)
    assert isinstance(notice, Notice)
    assert notice.text.startswith(f"--profile 4: rank 1 of trial 0 made {n_steps} optimizer step")
    assert "expected at least 3" in notice.text
    assert not (tmp_path / "profiles").exists()


def test_a_trace_that_is_too_large_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "_MAX_TRACE_BYTES", 10)
    (notice,) = Training(tmp_path, 1).run(4)
    assert "expected at most 10 B; profile fewer steps" in notice.text
    assert list((tmp_path / "profiles").iterdir()) == []


@pytest.mark.parametrize("n_steps", [2, 4, 9])
def test_a_profiler_that_fails_at_its_end_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_steps: int
) -> None:
    stop = torch.profiler.profile.stop

    def stop_badly(profile: Any) -> None:
        stop(profile)
        raise RuntimeError("external init callback must run in same thread")

    monkeypatch.setattr(torch.profiler.profile, "stop", stop_badly)
    (told,) = Training(tmp_path, 2).run(n_steps)
    assert isinstance(told, Notice)
    assert ("external init callback" in told.text) is (n_steps > 2)


def test_a_cell_that_uses_the_profiler_itself_keeps_it(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        sent = Training(tmp_path, 1).run(5)
    assert any(each.key == "aten::mm" for each in own.key_averages())
    assert [type(each) for each in sent] == [Notice]
    assert "the cell itself uses torch's profiler; leave one of them out" in sent[0].text


def test_on_a_gpu_the_longest_there_come_first() -> None:
    class Average:
        def __init__(self, key: str, cpu: float, device: float) -> None:
            self.key, self.count = key, 1
            self.self_cpu_time_total, self.self_device_time_total = cpu, device

    found = [
        Average("ProfilerStep*", 99.0, 99.0),
        Average("host", 9.0, 0.0),
        Average("kernel", 1.0, 5.0),
    ]
    assert [each.name for each in costliest(found)] == ["kernel", "host"]
    assert costliest(found)[0].device_s == 5e-6
    of_cpu = [Average("less", 1.0, 0.0), Average("more", 2.0, 0.0)]
    assert [each.name for each in costliest(of_cpu)] == ["more", "less"]
