"""``run.profile`` and ``%runs profile``: of each rank what costs most, from its record alone."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl.cli.main import TerminalFace
from jupyter_ddl.client.run import Run
from jupyter_ddl.commands.runs import RUNS
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.tables import PROFILE_COLUMNS
from jupyter_ddl.protocol.events import AttemptStarted, Operation, ProfileTaken, TrialCreated
from jupyter_ddl.views.profile import render_profile
from tests.leaks import Home
from tests.unit.recorded_runs import BEGAN_S, params_of, record_search


def taken(
    trial: int = 0, rank: int = 0, *, attempt: int = 1, device_s: float = 0.0
) -> ProfileTaken:
    return ProfileTaken(
        trial=trial,
        attempt=attempt,
        rank=rank,
        at_s=BEGAN_S + 1,
        n_steps=4,
        file=f"trial-{trial}-a{attempt}-r{rank}.json.gz",
        size_bytes=100,
        cpu_s=0.01,
        device_s=device_s,
        operations=(Operation("aten::mm", 8, 0.006, device_s), Operation("<b>", 4, 0.002, 0.0)),
    )


def record(run_id: str, *events: ProfileTaken) -> Run:
    begun = [TrialCreated(0, params_of(0), BEGAN_S), AttemptStarted(0, 1, BEGAN_S, "w0", 9, "", 0)]
    record_search(run_id, [*begun, *events])
    return Run(run_id)


def test_times_and_calls_are_those_of_a_step_and_shares_of_all_operations(home: Home) -> None:
    run = record("profiled", taken(), taken(rank=1), taken(attempt=2), taken(trial=3))
    table = run.profile
    # What belongs to no running attempt does not count.
    assert list(zip(table["trial"], table["rank"], strict=True)) == [(0, 0)] * 2 + [(0, 1)] * 2
    first = table.iloc[0]
    assert first[["operation", "calls"]].to_list() == ["aten::mm", 2]
    assert first[["cpu_ms", "device_ms", "share"]].to_list() == pytest.approx([1.5, 0.0, 0.6])
    assert first.trace == str(run.directory / "profiles" / "trial-0-a1-r0.json.gz")


def test_with_a_gpu_shares_are_of_its_time(home: Home) -> None:
    table = record("on-gpu", taken(device_s=0.02)).profile
    assert table.share.to_list() == [1.0, 0.0]
    text = repr(render_profile(table.to_dict("records")))
    assert "GPU, ms a step" in text


def test_the_table_is_escaped_and_names_the_trace(home: Home) -> None:
    run = record("shown", taken())
    drawing = render_profile(run.profile.to_dict("records"))
    html = drawing._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "trial-0-a1-r0.json.gz" in repr(drawing)
    assert "60 %" in repr(drawing)
    assert "ui.perfetto.dev" in repr(drawing)
    empty = record("empty")
    assert list(empty.profile) == list(PROFILE_COLUMNS)


def test_a_run_without_traces_is_told_how_to_get_some(home: Home) -> None:
    record("bare")
    command, values = RUNS.parse_line("profile bare")
    with pytest.raises(OptionError, match=r"run bare has no trace; `--profile N` on the line"):
        command.call(TerminalFace(), **values)


def test_an_unset_option_is_not_in_the_record(home: Home) -> None:
    assert b"profile" not in msgspec.msgpack.encode(record("unset").spec)
