"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.client.submit import check_supported
from jupyter_ddl.errors import LedgerBusyError, OptionError, RunNotFoundError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Choice, RandInt, Space, Uniform
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.tracking.tensorboard import writing
from jupyter_ddl.tracking.tensorboard.event_files import RunFiles
from jupyter_ddl.tracking.tensorboard.writing import write_run
from jupyter_ddl.verbs.base import parse_line
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search

pytest.importorskip("tensorboard")

SPACE: Space = {
    "lr": Uniform(1e-4, 1e-1, log=True),
    "width": RandInt(8, 64),
    "bias": Choice((True, False)),
    "act": Choice(("relu", "tanh")),
    "mixed": Choice((1, "one", None)),
}
PARAMS: dict[str, Any] = {"lr": 0.01, "width": 32, "bias": True, "act": "tanh", "mixed": 1}
PROGRAM = Program("acc = 1", "In [3]")


def search(n_trials: int = 2) -> RunSpec:
    verb = Search("acc", "max", n_trials, SPACE)
    return RunSpec("r1121-abcde", verb, PROGRAM, 7, "local", 1000.0)


def begin(spec: RunSpec) -> list[Event]:
    return [RunSubmitted(spec, 1000.0), RunStarted(1001.0, 1, 2, 2, 42)]


def trial(number: int, accs: list[float], outcome: Any = "complete") -> list[Event]:
    reports = [
        Reported(number, 1, step, {"acc": acc, "loss": 1 - acc}, 1003.0 + step)
        for step, acc in enumerate(accs)
    ]
    value = accs[-1] if accs else 0.25
    return [
        TrialCreated(number, PARAMS, 1002.0),
        AttemptStarted(number, 1, 1002.5, "w0", 77, "w0.log", 0),
        *reports,
        AttemptFinished(number, 1, outcome, 1010.0, 8.0, value),
    ]


def write(events: list[Event], directory: Path) -> None:
    files = RunFiles(directory)
    for event in events:
        files.add(event)
    files.flush()


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(directory)).Reload()
    return {
        tag: [(each.step, round(each.value, 4)) for each in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def plugin(directory: Path, tag: str) -> Any:
    """The content of an HParams summary."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    read = EventAccumulator(str(directory)).Reload()
    content = read.SummaryMetadata(tag).plugin_data.content
    parse = {
        metadata.EXPERIMENT_TAG: metadata.parse_experiment_plugin_data,
        metadata.SESSION_START_INFO_TAG: metadata.parse_session_start_info_plugin_data,
        metadata.SESSION_END_INFO_TAG: metadata.parse_session_end_info_plugin_data,
    }[tag]
    return parse(content)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("events.*"))
    }


def test_every_trial_has_its_scalars_and_the_run_its_best(tmp_path: Path) -> None:
    events = begin(search()) + trial(0, [0.1, 0.2]) + trial(1, [0.3, 0.9])
    write(events, tmp_path)
    assert scalars(tmp_path / "trial-0000")["acc"] == [(0, 0.1), (1, 0.2)]
    assert scalars(tmp_path / "trial-0001")["loss"] == [(0, 0.7), (1, 0.1)]
    assert scalars(tmp_path)["best/acc"] == [(1, 0.2), (2, 0.9)]


def test_an_objective_that_was_never_reported_is_a_scalar_too(tmp_path: Path) -> None:
    write(begin(search()) + trial(0, []), tmp_path)
    assert scalars(tmp_path / "trial-0000") == {"acc": [(0, 0.25)]}


def test_hparams_tell_the_space_the_trials_and_how_they_ended(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import api_pb2, metadata

    write(begin(search()) + trial(0, [0.1]) + trial(1, [0.1], "failed"), tmp_path)
    experiment = plugin(tmp_path, metadata.EXPERIMENT_TAG)
    infos = {info.name: info for info in experiment.hparam_infos}
    assert infos["lr"].domain_interval.max_value == 0.1
    assert infos["bias"].type == api_pb2.DATA_TYPE_BOOL
    assert [each.string_value for each in infos["act"].domain_discrete.values] == ["relu", "tanh"]
    assert infos["mixed"].type == api_pb2.DATA_TYPE_STRING
    assert experiment.metric_infos[0].name.tag == "acc"
    start = plugin(tmp_path / "trial-0000", metadata.SESSION_START_INFO_TAG)
    assert start.hparams["lr"].number_value == 0.01
    assert start.hparams["bias"].bool_value is True
    assert start.hparams["mixed"].string_value == "1"
    end = plugin(tmp_path / "trial-0000", metadata.SESSION_END_INFO_TAG)
    assert end.status == api_pb2.STATUS_SUCCESS


def test_the_hparams_page_lists_every_trial_with_its_metric(tmp_path: Path) -> None:
    """As the plugin itself would answer a browser."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    write(begin(search()) + trial(0, [0.1, 0.2]) + trial(1, [0.3, 0.9]), tmp_path)
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=10,
        allowed_statuses=[api_pb2.STATUS_SUCCESS],
        col_params=[
            api_pb2.ColParams(metric=api_pb2.MetricName(tag="acc"), order=api_pb2.ORDER_DESC)
        ],
    )
    answer = list_session_groups.Handler(RequestContext(), context, "e", request).run()
    found = [group.metric_values[0].value for group in answer.session_groups]
    assert [round(value, 4) for value in found] == [0.9, 0.2]
    assert {group.hparams["act"].string_value for group in answer.session_groups} == {"tanh"}


def test_steps_that_a_later_attempt_repeats_count_once(tmp_path: Path) -> None:
    def attempt(number: int, steps: range, value: float) -> list[Event]:
        return [
            AttemptStarted(0, number, 1002.5, "w0", 77, "w0.log", 0),
            *(Reported(0, number, step, {"acc": value}, 1003.0 + step) for step in steps),
        ]

    events = [
        *begin(search(1)),
        TrialCreated(0, PARAMS, 1002.0),
        *attempt(1, range(6), 0.1),
        AttemptFinished(0, 1, "evicted", 1009.0, 5.0),
        *attempt(2, range(4, 8), 0.2),
        # Late news of the attempt before.
        Reported(0, 1, 9, {"acc": 0.9}, 1012.0),
    ]
    write(events, tmp_path)
    expected = [(step, 0.1 if step < 4 else 0.2) for step in range(8)]
    assert scalars(tmp_path / "trial-0000")["acc"] == expected


def test_ranks_of_a_ddp_run_have_curves_of_their_own(tmp_path: Path) -> None:
    spec = RunSpec("d1", Ddp(n_ranks=2), PROGRAM, 7, "local", 1000.0)
    events = [
        *begin(spec),
        TrialCreated(0, {}, 1002.0),
        AttemptStarted(0, 1, 1002.5, "w0", 77, "w0.log", 0),
        *(Reported(0, 1, 0, {"loss": 1.0 + rank}, 1003.0, rank) for rank in range(2)),
    ]
    write(events, tmp_path)
    assert scalars(tmp_path) == {"loss": [(0, 1.0)]}
    assert scalars(tmp_path / "rank-1") == {"loss": [(0, 2.0)]}


def test_numbers_beyond_single_precision_do_not_end_the_writer(tmp_path: Path) -> None:
    write(begin(search()) + trial(0, [math.nan, math.inf, 1e300, -1e300, 5e-324]), tmp_path)
    steps = [step for step, _ in scalars(tmp_path / "trial-0000")["acc"]]
    assert steps == [0, 1, 2, 3, 4]


# -- appended to, never twice ---------------------------------------------------------------------


def test_a_writer_cut_off_at_any_byte_is_completed_by_the_next_one(tmp_path: Path) -> None:
    events = begin(search()) + trial(0, [0.1, 0.2])
    write(events, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    name = next(name for name in whole if name.startswith("trial"))
    target = tmp_path / "cut" / name
    target.parent.mkdir(parents=True)
    for length in range(len(whole[name])):
        target.write_bytes(whole[name][:length])
        write(events, tmp_path / "cut")
        assert contents(tmp_path / "cut") == whole


def test_growing_ledgers_give_the_same_bytes_as_whole_ones(tmp_path: Path) -> None:
    events = begin(search()) + trial(0, [0.1, 0.2]) + trial(1, [0.3])
    for n_known in range(1, len(events) + 1):
        write(events[:n_known], tmp_path / "growing")
    write(events, tmp_path / "whole")
    assert contents(tmp_path / "growing") == contents(tmp_path / "whole")


def test_another_process_writes_the_same_bytes(tmp_path: Path, home: Any) -> None:
    record(begin(search()) + trial(0, [0.1]))
    write_run("r1121-abcde", tmp_path / "here")
    program = (
        "import sys; from pathlib import Path; "
        "from jupyter_ddl.tracking.tensorboard.writing import *; "
        "write_run('r1121-abcde', Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        there = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, str(there)]
        subprocess.run(command, check=True, env=environment, timeout=120)
        assert contents(there) == contents(tmp_path / "here")


# -- refusals -------------------------------------------------------------------------------------


def record(events: list[Event]) -> None:
    run_dir("r1121-abcde").mkdir(parents=True)
    with LedgerWriter.open(ledger_path("r1121-abcde"), create=True) as ledger:
        ledger.append(events)


def test_two_writers_of_one_directory_are_refused(tmp_path: Path, home: Any) -> None:
    record([*begin(search()), RunFinished(1020.0, "complete")])
    with (
        writing._alone(tmp_path / "files", "r1121-abcde"),
        pytest.raises(LedgerBusyError, match="are being written by another process"),
    ):
        write_run("r1121-abcde", tmp_path / "files")


def test_a_missing_package_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    context = CellContext(cell_number=None, notebook_dir=Path.cwd())
    cell = "from jupyter_ddl import uniform\nx = uniform(0, 1)\n"
    verb, options = parse_line("search --metric x --tensorboard")
    compiled = verb.compile(cell, {}, context, options)
    check_supported(compiled)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(OptionError, match=r"--tensorboard: .* `%pip install tensorboard`"):
        check_supported(compiled)


def test_an_unknown_run_is_refused(tmp_path: Path, home: Any) -> None:
    with pytest.raises(RunNotFoundError, match="there is no run r0000-none"):
        write_run("r0000-none", tmp_path)
