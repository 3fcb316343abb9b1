"""Rows of runs from ledgers, the table of clusters, and a run in full."""

from __future__ import annotations

from pathlib import Path

import msgspec

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.protocol.snapshot import RunLine, RunSnapshot
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.telemetry import Usage
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.verbs.search import Search
from jupyter_ddl.views.details import again_line, render_details
from jupyter_ddl.views.tables import ClusterRow, render_clusters, render_runs


def _line(**changes: object) -> RunLine:
    fields = {
        "run_id": "r1-abc",
        "name": "",
        "verb": "search",
        "can": load_verb("search").can,
        "nouns": load_verb("search").nouns,
        "state": "running",
        "cluster": "local",
        "created_at_s": 100.0,
        "n_trials": 8,
        "n_finished": 3,
    }
    return RunLine(**{**fields, **changes})


def _spec(line: str = "%%distribute search --metric acc", cell: str = "x = 1\n") -> RunSpec:
    verb = Search(metric="acc", mode="max", n_trials=8, space={"lr": Uniform(0.1, 1.0)})
    return RunSpec(
        run_id="r1-abc",
        verb=verb,
        program=Program(source="\nx = 1\n", filename="In [3]"),
        seed=42,
        cluster="local",
        created_at_s=100.0,
        provenance=Provenance(line=line, cell=cell, user="ada", host="lab"),
    )


def _cluster(name: str) -> ClusterRow:
    return ClusterRow(
        name=name,
        backend="local",
        state="ready",
        n_workers=2,
        n_slots=2,
        cpus=2,
        memory_bytes=None,
        n_runs=1,
        idle_left_s=None,
        age_left_s=3600.0,
        controller="process 7",
        address="tls://127.0.0.1:1",
    )


def test_a_live_run_has_a_time_that_grows_and_an_interrupted_one_has_none() -> None:
    live = repr(render_runs([_line(live=True)], now_s=225.0))
    lost = repr(render_runs([_line()], now_s=225.0))
    assert "3 of 8" in live
    assert ("2 min 05 s" in live, "2 min 05 s" in lost) == (True, False)
    assert ("interrupted" in live, "interrupted" in lost) == (False, True)


def test_a_finished_run_keeps_its_time() -> None:
    drawn = repr(render_runs([_line(state="complete", finished_at_s=130.0)], now_s=9999.0))
    assert "30 s" in drawn


def test_the_cluster_in_use_is_marked_and_no_cluster_is_said_in_words() -> None:
    text = repr(render_clusters([_cluster("a"), _cluster("b")], current="b")).splitlines()
    assert [line.endswith("in use") for line in text] == [False, False, True]
    empty = render_clusters([], current=None)
    assert repr(empty) == "No cluster is running."
    assert "No cluster is running." in empty._repr_html_()


def test_the_line_that_runs_again_carries_the_seed_once() -> None:
    assert again_line(_spec()) == "%%distribute search --metric acc --seed 42"
    given = "%%distribute search --metric acc --seed 1"
    assert again_line(_spec(given)) == given
    assert again_line(_spec("")) == ""


def test_a_run_in_full_shows_space_origin_and_code_and_escapes_them() -> None:
    spec = _spec(cell="x = '<script>alert(1)</script>'\n")
    origin = msgspec.structs.replace(spec.provenance, image="ddl@sha256:12ab")
    spec = msgspec.structs.replace(spec, provenance=origin)
    drawn = render_details(samples.search(), spec, directory=Path("/runs/r1"), now_s=samples.NOW_S)
    text, page = repr(drawn), drawn._repr_html_()
    for part in ("uniform(0.1, 1)", "ada@lab", "--seed 42", "/runs/r1", "ddl@sha256:12ab"):
        assert part in text
        assert part in page
    assert "<script>" in text
    assert "<script>" not in page
    assert "The cell (1 line)" in page


def test_clusters_are_listed_with_their_gpus_where_any_has_some() -> None:
    plain = _cluster("a")
    with_gpus = msgspec.structs.replace(_cluster("b"), gpus="2 × NVIDIA L4, 1 busy")
    without = msgspec.structs.replace(_cluster("c"), gpus="n/a: no NVIDIA driver")
    assert "2 × NVIDIA L4, 1 busy" in repr(render_clusters([plain, with_gpus], current=None))
    assert "GPUs" not in repr(render_clusters([plain, without], current=None))


def test_a_run_that_is_over_tells_what_it_has_held() -> None:
    def details(snapshot: RunSnapshot) -> str:
        drawn = render_details(snapshot, _spec(), directory=Path("/r"), now_s=samples.NOW_S)
        assert ("CPU-hours" in drawn._repr_html_()) == ("CPU-hours" in repr(drawn))
        return repr(drawn)

    usage = Usage(0.5034, 2.0, (3 << 30, None, 5 << 30))
    text = details(msgspec.structs.replace(samples.search(), usage=usage))
    assert "0.503 CPU-hours, 2 GPU-hours" in text
    assert "5 GiB (rank 2)" in text
    assert "1.8 CPU-seconds" in details(
        msgspec.structs.replace(samples.search(), usage=Usage(0.0005, 0.0))
    )
    assert "CPU-" not in details(samples.search())
