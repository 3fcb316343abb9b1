from __future__ import annotations

import re

import msgspec
import pytest

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.replies import ClusterStatus, WorkerStatus
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.protocol.sampling import PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.snapshot import RunLine, RunSnapshot
from jupyter_ddl.protocol.space import Choice, Distribution, Uniform
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.verbs.search import Search
from jupyter_ddl.views import (
    ClusterRow,
    ComparedRun,
    Drawing,
    cluster_row,
    render_cluster,
    render_compare,
    render_runs,
)
from jupyter_ddl.views.drawing import BLUE, GREEN, ORANGE, cell_width
from tests.unit.views.view_payloads import PAYLOADS, SAFE_ATTRIBUTES, SAFE_TAGS, Structure

replace = msgspec.structs.replace
NOW_S = samples.NOW_S
RUN = RunLine(
    run_id="r-1",
    name="width and rate",
    verb="search",
    can=load_verb("search").can,
    nouns=load_verb("search").nouns,
    state="running",
    n_finished=24,
    n_trials=40,
    best=0.88591,
    metric="val_acc",
    created_at_s=NOW_S - 300,
    cluster="local",
    live=True,
)
CLUSTER = ClusterRow(
    name="local",
    backend="local",
    state="ready",
    n_workers=2,
    n_slots=4,
    cpus=4,
    memory_bytes=8 * 2**30,
    n_runs=1,
    idle_left_s=None,
    age_left_s=82_800.0,
    controller="process 4711",
    address="tls://127.0.0.1:40123",
    n_busy=2,
)
CELL = "lr = loguniform(1e-4, 1e-1)\ntrain(lr)\n"


def html_of(drawing: Drawing) -> str:
    return drawing._repr_mimebundle_()["text/html"]


def words(drawing: Drawing) -> str:
    return " ".join(" ".join(Structure(html_of(drawing)).text).split())


def compared(
    snapshot: RunSnapshot, cell: str = CELL, sampler: str = "random", **space: Distribution
) -> ComparedRun:
    verb = Search(
        metric="val_acc",
        mode="max",
        n_trials=40,
        space={"lr": Uniform(1e-4, 0.1, log=True), **space},
        sampler=SamplerSpec(sampler),
        pruner=PrunerSpec("asha"),
    )
    provenance = Provenance(cell=cell, python="3.12.1", packages={"torch": f"2.{len(sampler)}"})
    spec = RunSpec(
        run_id=snapshot.run_id,
        verb=verb,
        program=Program(source=cell, filename="In [3]"),
        seed=7,
        cluster=snapshot.cluster,
        created_at_s=NOW_S,
        provenance=provenance,
    )
    return ComparedRun(snapshot=snapshot, spec=spec)


def test_a_run_without_a_controller_that_has_not_ended_is_interrupted() -> None:
    assert "interrupted" in repr(render_runs([replace(RUN, live=False)], now_s=NOW_S))
    ended = replace(RUN, live=False, state="complete")
    assert "interrupted" not in repr(render_runs([ended], now_s=NOW_S))


def test_runs_are_listed_with_progress_best_and_age() -> None:
    for text in (repr(render_runs([RUN], now_s=NOW_S)), words(render_runs([RUN], now_s=NOW_S))):
        for part in ("r-1", "width and rate", "24 of 40", "val_acc 0.8859", "5 min ago"):
            assert part in text


def test_a_training_is_listed_with_its_step_and_not_as_one_trial() -> None:
    training = replace(
        RUN,
        verb="ddp",
        can=load_verb("ddp").can,
        nouns=load_verb("ddp").nouns,
        n_finished=1,
        n_trials=1,
        step=1790,
        round=1,
        best=None,
    )
    restarted = replace(training, run_id="r-2", round=3)
    silent = replace(training, run_id="r-3", step=None)
    text = repr(render_runs([training, restarted, silent], now_s=NOW_S))
    assert "1 of 1" not in text
    heading, *lines = text.split("\n")
    end = heading.index("progress") + len("progress")
    told = [line[:end].split("running")[1].strip() for line in lines]
    assert told == ["step 1,790", "step 1,790, round 3", ""]


def test_a_comparison_of_trainings_tells_how_far_they_came() -> None:
    first = compared(replace(samples.group(), state="complete"))
    text = repr(render_compare(first, compared(samples.search()), now_s=NOW_S))
    assert re.search(r"progress +step 1,790, round 3 +24 of 40", text)


def test_a_long_list_of_runs_is_cut_and_says_so() -> None:
    drawing = render_runs([RUN] * 1000, now_s=NOW_S)
    assert html_of(drawing).count("<tr") == 31
    assert "970 more not shown" in repr(drawing)
    assert len(html_of(drawing).encode()) < 48_000


def test_no_runs_is_said_in_words() -> None:
    assert repr(render_runs([], now_s=NOW_S)) == "No runs yet."


def test_the_text_of_a_list_keeps_to_its_width() -> None:
    wide = replace(RUN, name="名前" * 50, cluster="c" * 90)
    lines = repr(render_runs([wide, RUN], now_s=NOW_S, width=70)).split("\n")
    assert max(cell_width(line) for line in lines) <= 70


def test_a_cluster_tells_its_size_and_when_it_ends_by_itself() -> None:
    idle = replace(CLUSTER, n_runs=0, idle_left_s=1500.0)
    for text in (repr(render_cluster(idle)), words(render_cluster(idle))):
        assert "2 workers with 4 slots" in text
        assert "4 CPUs, 8 GiB of memory" in text
        assert "in 25 min if it stays idle, in 23 h at the latest" in text
    assert "1 active" in repr(render_cluster(CLUSTER))
    assert "no memory limit" in repr(render_cluster(replace(CLUSTER, memory_bytes=None)))


def test_a_controllers_answer_becomes_a_cluster_row() -> None:
    worker = WorkerStatus(name="w0", address="tls://h:1", host="h", n_slots=2, n_busy=1)
    status = ClusterStatus(
        name="local",
        backend="local",
        state="ready",
        controller_pid=4711,
        scheduler_address="tls://127.0.0.1:40123",
        started_at_s=0.0,
        workers=(worker, worker),
        n_wanted=2,
        cpus_per_worker=1,
        memory_per_worker_bytes=2 * 2**30,
        active_runs=("r-1",),
        idle_timeout_s=1800.0,
        idle_left_s=None,
        age_left_s=82_800.0,
    )
    assert cluster_row(status) == CLUSTER
    elsewhere = cluster_row(replace(status, controller_host="kube-1-scheduler"))
    assert elsewhere.controller == "process 4711 on kube-1-scheduler"


def test_what_troubles_a_cluster_is_shown_and_escaped() -> None:
    row = replace(CLUSTER, state="degraded", trouble="the scheduler is <lost>: runs wait")
    for text in (repr(render_cluster(row)), words(render_cluster(row))):
        assert "degraded" in text
        assert "the scheduler is <lost>: runs wait" in text
    assert "&lt;lost&gt;" in html_of(render_cluster(row))
    assert "trouble" not in repr(render_cluster(CLUSTER))


def test_a_comparison_shows_what_differs_in_results_space_packages_and_code() -> None:
    first = compared(samples.search())
    changed = CELL.replace("train(lr)", "train(lr, clip)")
    second = compared(
        replace(samples.search(), name="clipped", run_id="r-2"), changed, "tpe", clip=Choice((1, 2))
    )
    drawing = render_compare(first, second, now_s=NOW_S)
    for text in (repr(drawing), words(drawing)):
        for part in (
            "random",
            "tpe",
            "choice(1, 2)",
            "-train(lr)",
            "+train(lr, clip)",
            "2.6",
            "2.3",
        ):
            assert part in text
    assert "≠ sampler" in repr(drawing)
    assert "≠ seed" not in repr(drawing)
    assert "img" in Structure(html_of(drawing)).tags


def test_a_page_that_draws_curves_itself_gets_no_picture_and_no_remark_of_them() -> None:
    first = compared(samples.search())
    for other in (samples.search(), replace(samples.search(), metric="loss", mode="min")):
        html = html_of(render_compare(first, compared(other), now_s=NOW_S, has_curves=False))
        assert "<img" not in html
        assert "share no axis" not in html


def test_curves_of_several_runs_share_a_chart() -> None:
    shots = [replace(samples.search(), name=name, run_id=name) for name in ("a", "b", "c")]
    runs = [
        compared(shot, seed) for shot, seed in zip(shots, ("x = 1", "x = 1", "x = 2"), strict=True)
    ]
    drawing = render_compare(*runs, now_s=NOW_S)
    html = html_of(drawing)
    assert html.count("<img") == 1
    source = html.partition("data:image/svg+xml,")[2].partition('"')[0]
    assert all(color.lstrip("#") in source for color in (BLUE, ORANGE, GREEN))
    assert "The code differs; compare two of them to see how." in repr(drawing)
    assert 'aria-label="Runs a, b and c compared"' in html


def test_equal_code_is_said_in_words_and_different_metrics_share_no_axis() -> None:
    first = compared(samples.search())
    second = compared(replace(samples.search(), metric="loss", mode="min"))
    drawing = render_compare(first, second, now_s=NOW_S)
    assert "The code is the same." in repr(drawing)
    assert "different metrics" in words(drawing)
    assert "img" not in Structure(html_of(drawing)).tags


def test_a_comparison_of_huge_cells_stays_small() -> None:
    first = compared(samples.search(), "\n".join(f"a{k} = '{'<' * 300}'" for k in range(5000)))
    second = compared(samples.search(), "\n".join(f"b{k} = '{'&' * 300}'" for k in range(5000)))
    assert len(html_of(render_compare(first, second, now_s=NOW_S)).encode()) < 200_000


def test_comparing_twice_the_same_map_draws_no_space_and_no_curve() -> None:
    one = compared(samples.mapped())
    assert Structure(html_of(render_compare(one, one, now_s=NOW_S))).depth == 0


def _poisoned_drawings(payload: str) -> list[Drawing]:
    run = replace(RUN, run_id=payload, name=payload, verb=payload, metric=payload, cluster=payload)
    cluster = replace(CLUSTER, name=payload, backend=payload, address=payload)
    shot = replace(samples.search(), name=payload, metric=payload, cluster=payload)
    ours = compared(shot, f"x = 1\n{payload}\n", payload)
    theirs = compared(shot, "x = 1\n", payload, **{payload: Choice((payload,))})
    theirs = replace(
        theirs,
        spec=replace(
            theirs.spec,
            provenance=replace(
                theirs.spec.provenance,
                line=payload,
                python=payload,
                git_revision=payload,
                packages={payload: payload},
            ),
        ),
    )
    return [
        render_runs([run], now_s=NOW_S),
        render_cluster(cluster),
        render_compare(ours, theirs, now_s=NOW_S),
    ]


def test_no_payload_in_any_field_of_a_table_adds_an_element() -> None:
    harmless = [Structure(html_of(d)).elements for d in _poisoned_drawings("harmless")]
    for payload in PAYLOADS:
        # One line of hostile code stays one line of the diff.
        one_line = " ".join(payload.split())
        drawn = [Structure(html_of(d)).elements for d in _poisoned_drawings(one_line)]
        assert drawn == harmless, payload


@pytest.mark.parametrize("at", [0, 1, 2])
def test_tables_use_only_the_allowed_elements(at: int) -> None:
    structure = Structure(html_of(_poisoned_drawings("x")[at]))
    assert structure.tags <= SAFE_TAGS
    assert structure.attributes <= SAFE_ATTRIBUTES
    assert structure.depth == 0


def test_a_cluster_tells_of_its_gpus_or_why_there_are_none() -> None:
    told = msgspec.structs.replace(CLUSTER, gpus="8 × NVIDIA A100, 3 busy")
    assert "GPUs        8 × NVIDIA A100, 3 busy" in repr(render_cluster(told))
    assert "8 × NVIDIA A100, 3 busy" in html_of(render_cluster(told))
    none = msgspec.structs.replace(CLUSTER, gpus="n/a: driver not loaded")
    assert "n/a: driver not loaded" in repr(render_cluster(none))
    assert "GPUs" not in repr(render_cluster(CLUSTER))
