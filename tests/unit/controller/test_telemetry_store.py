"""The controller's picture of its workers: complete when small, bounded when large."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.controller.telemetry import gpu_line
from jupyter_ddl.controller.telemetry_store import MAX_SAMPLE_BYTES, TelemetryStore
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, WorkerSample
from tests.unit.controller.telemetry_samples import gpu, rank, sample

MAX_VIEW_BYTES = 128_000


def put(store: TelemetryStore, *samples: WorkerSample) -> None:
    for each in samples:
        store.add(msgspec.msgpack.encode(each))


def view(store: TelemetryStore, run_id: str = "") -> ClusterTelemetry:
    return store.view(run_id, 200.0, cpu_hours=1.5, gpu_hours=0.5)


@pytest.fixture
def store() -> TelemetryStore:
    found = TelemetryStore()
    found.keep(["w0", "w1"])
    return found


def test_a_view_has_the_newest_samples_and_their_histories(store: TelemetryStore) -> None:
    put(store, *(sample("w0", 100.0 + s, cpu=float(s), gpus=(gpu(),)) for s in range(5)))
    put(store, sample("w1", 103.0))
    found = view(store)
    assert [(w.worker, w.at_s, w.cpu) for w in found.workers] == [
        ("w0", 104.0, 4.0),
        ("w1", 103.0, 1.53),
    ]
    assert found.n_workers == 2
    assert (found.cpu_hours, found.gpu_hours) == (1.5, 0.5)
    history = found.histories[0]
    assert history.worker == "w0"
    assert history.at_s == (100.0, 101.0, 102.0, 103.0, 104.0)
    assert history.cpu == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert history.gpu == {gpu().uuid: (0.9,) * 5}
    assert history.gpu_memory == {gpu().uuid: (0.1,) * 5}


def test_a_history_has_sixty_points_at_most_all_lists_equally_long(store: TelemetryStore) -> None:
    put(store, *(sample("w0", 100.0 + s) for s in range(90)))
    put(store, *(sample("w0", 190.0 + s, gpus=(gpu(),), cpu=None) for s in range(10)))
    history = view(store).histories[0]
    assert history.at_s == tuple(140.0 + s for s in range(60))
    assert history.cpu == (1.53,) * 50 + (None,) * 10
    assert history.gpu[gpu().uuid] == (None,) * 50 + (0.9,) * 10
    assert len(history.memory_bytes) == len(history.gpu_memory[gpu().uuid]) == 60


def test_the_sequence_number_grows_with_what_is_seen(store: TelemetryStore) -> None:
    put(store, sample("w0", 100.0))
    first = view(store).seq
    assert view(store).seq == first
    put(store, sample("w0", 101.0))
    assert view(store).seq > first


def test_a_run_s_view_has_its_workers_and_only_its_ranks(store: TelemetryStore) -> None:
    put(store, sample("w0", 100.0, ranks=(rank(0), rank(1, run_id="run-2"))))
    put(store, sample("w1", 100.0, ranks=(rank(2, run_id="run-2"),)))
    found = view(store, "run-1")
    assert [w.worker for w in found.workers] == ["w0"]
    assert [(r.run_id, r.rank) for r in found.workers[0].ranks] == [("run-1", 0)]
    assert [w.worker for w in view(store, "run-2").workers] == ["w0", "w1"]
    assert view(store, "run-3").workers == ()


def test_a_worker_stays_in_a_run_s_picture_for_a_minute(store: TelemetryStore) -> None:
    put(store, sample("w0", 100.0, ranks=(rank(),)))
    put(store, sample("w0", 150.0))
    assert len(view(store, "run-1").workers) == 1
    put(store, sample("w0", 161.0))
    assert view(store, "run-1").workers == ()


def test_a_worker_that_left_is_forgotten_and_strangers_are_refused(store: TelemetryStore) -> None:
    put(store, sample("w0", 100.0), sample("w1", 100.0))
    store.keep(["w1"])
    assert [w.worker for w in view(store).workers] == ["w1"]
    put(store, sample("w0", 101.0))
    assert store.n_refused == 1
    assert view(store).n_workers == 1


def test_an_older_sample_does_not_replace_a_newer_one(store: TelemetryStore) -> None:
    put(store, sample("w0", 101.0, cpu=1.0), sample("w0", 100.0, cpu=2.0))
    assert view(store).workers[0].cpu == 1.0
    assert len(view(store).histories[0].at_s) == 1


@given(st.binary(max_size=200))
def test_what_is_no_sample_is_counted_and_changes_nothing(payload: bytes) -> None:
    store = TelemetryStore()
    store.keep(["w0"])
    assert store.add(payload) is None
    assert store.n_refused == 1
    assert view(store).workers == ()


def test_a_sample_that_is_too_large_is_refused(store: TelemetryStore) -> None:
    put(store, sample("w0", 100.0, gpu_state="x" * MAX_SAMPLE_BYTES))
    assert store.n_refused == 1


def large(n_workers: int, n_gpus: int, n_samples: int) -> TelemetryStore:
    store = TelemetryStore()
    store.keep([f"worker-{number}" for number in range(n_workers)])
    gpus = tuple(gpu(index) for index in range(n_gpus))
    for s in range(n_samples):
        for number in range(n_workers):
            ranks = (rank(number, gpus=tuple(g.uuid for g in gpus)),)
            put(store, sample(f"worker-{number}", 100.0 + s, gpus=gpus, ranks=ranks))
    return store


@pytest.mark.parametrize(("n_workers", "n_gpus"), [(1, 64), (8, 8), (40, 8), (1000, 0), (1000, 8)])
def test_a_view_is_bounded_whatever_the_size(n_workers: int, n_gpus: int) -> None:
    store = large(n_workers, n_gpus, 3 if n_workers > 100 else 60)
    for run_id in ("", "run-1"):
        found = view(store, run_id)
        assert len(msgspec.json.encode(found)) <= MAX_VIEW_BYTES
        assert found.n_workers == n_workers
        assert len(found.histories) <= 32
        assert found.workers or found.others
        listed = {w.worker for w in found.workers}
        assert listed.isdisjoint(found.others)


def test_of_a_thousand_workers_without_gpus_none_is_missing() -> None:
    found = view(large(1000, 0, 1))
    assert len(found.workers) + len(found.others) == 1000
    assert found.others["worker-999"] == (0.77, 0.25)


def test_where_room_is_short_trouble_and_work_are_shown_first() -> None:
    store = TelemetryStore()
    store.keep([f"worker-{number}" for number in range(1000)])
    put(store, *(sample(f"worker-{number}", 100.0) for number in range(1000)))
    put(store, sample("worker-998", 101.0, gpus=(gpu(state="lost"),)))
    put(store, sample("worker-997", 101.0, ranks=(rank(),)))
    shown = [w.worker for w in view(store).workers]
    assert {"worker-998", "worker-997"} <= set(shown)
    assert shown[0] == "worker-0"


def test_a_thousand_workers_take_little_memory() -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    store = large(1000, 0, 2)
    held_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert view(store).n_workers == 1000
    assert held_bytes < 16 << 20


def test_the_line_about_gpus_counts_them_once_and_says_what_is_wrong() -> None:
    both = (gpu(0), gpu(1, 0.0))
    assert gpu_line([]) == ""
    assert (
        gpu_line([sample("w0", 1.0, gpu_state="n/a: no NVIDIA driver")]) == "n/a: no NVIDIA driver"
    )
    assert gpu_line([sample("w0", 1.0, gpus=both), sample("w1", 1.0, gpus=both)]) == (
        "2 × Fake 80, 1 busy"
    )
    lost = (gpu(0), gpu(1, None, state="lost"))
    assert gpu_line(
        [sample("w0", 1.0, gpus=lost), sample("w1", 1.0, gpu_state="n/a: driver not loaded")]
    ) == ("2 × Fake 80, 1 busy, GPU 1 lost, n/a: driver not loaded")
