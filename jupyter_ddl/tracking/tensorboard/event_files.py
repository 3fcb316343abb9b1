"""The events of one run as event files: one for the run, one for each trial.

``<directory>/`` has what belongs to the whole run: the searched space and the best value so far, or
the metrics of a ddp run's rank 0.  ``trial-0007/`` has the metrics of a trial, ``rank-1/`` those of
another rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import AttemptFinished, Event, Reported, RunSubmitted, TrialCreated
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import StudySpec
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Space, Uniform

__all__ = ["EventFile", "RunFiles", "experiment", "session_end", "session_start"]


# One event file of TensorBoard, written as if from its beginning and appended to in fact.


class EventFile:
    """Collects events; :meth:`flush` appends those that the file does not have yet.

    The bytes are the same whenever they are made, so what is there already is skipped by its
    length alone, a half-written record included.

    Parameters
    ----------
    path : Path
        Its directory is made when there is something to write.
    at_s : float
        Unix seconds of the first record.
    """

    def __init__(self, path: Path, at_s: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._path = path
        self._pending = BytesIO()
        self._records = RecordWriter(self._pending)
        self._n_made = 0
        self.add(Event(wall_time=at_s, file_version="brain.Event:2"))

    def add(self, event: Any) -> None:
        """Append one ``Event`` of TensorBoard."""
        # Maps inside a message have no order of their own.
        self._records.write(event.SerializeToString(deterministic=True))

    def flush(self) -> None:
        """Bring the file up to date.  Raises OSError."""
        data = self._pending.getvalue()
        if not data:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            # Its size as it is: the last attempt may have ended in the middle of a write.
            file.write(data[max(0, file.tell() - self._n_made) :])
        self._n_made += len(data)
        self._pending.seek(0)
        self._pending.truncate()


# The messages of TensorBoard's HParams page: what was searched, and what each trial got.


def experiment(study: StudySpec, at_s: float) -> Any:
    """The summary that names parameters, their domains and the metric of a search."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    metric = api_pb2.MetricInfo(name=api_pb2.MetricName(tag=study.metric))
    message = api_pb2.Experiment(
        hparam_infos=[_info(name, dist) for name, dist in study.space.items()],
        metric_infos=[metric],
        time_created_secs=at_s,
    )
    return _summary("experiment", HParamsPluginData(experiment=message))


def session_start(params: dict[str, ParamValue], space: Space, group: str, at_s: float) -> Any:
    """The summary that opens a trial."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    start = SessionStartInfo(group_name=group, start_time_secs=at_s)
    for name, value in params.items():
        field, plain = _plain(value, space.get(name))
        setattr(start.hparams[name], field, plain)
    return _summary("session_start_info", HParamsPluginData(session_start_info=start))


def session_end(outcome: str, at_s: float) -> Any:
    """The summary that closes a trial; ``outcome`` as in ``AttemptFinished``."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    is_good = outcome in ("complete", "pruned")
    status = api_pb2.STATUS_SUCCESS if is_good else api_pb2.STATUS_FAILURE
    end = SessionEndInfo(status=status, end_time_secs=at_s)
    return _summary("session_end_info", HParamsPluginData(session_end_info=end))


def _info(name: str, dist: Distribution) -> Any:
    from tensorboard.plugins.hparams import api_pb2

    info = api_pb2.HParamInfo(name=name)
    match dist:
        case Uniform(low=low, high=high) | RandInt(low=low, high=high):
            info.type = api_pb2.DATA_TYPE_FLOAT64
            info.domain_interval.min_value = low
            info.domain_interval.max_value = high
        case Choice(values=values):
            kinds = {_plain(value, dist)[0] for value in values}
            kind = kinds.pop() if len(kinds) == 1 else "string_value"
            info.type = {
                "bool_value": api_pb2.DATA_TYPE_BOOL,
                "number_value": api_pb2.DATA_TYPE_FLOAT64,
                "string_value": api_pb2.DATA_TYPE_STRING,
            }[kind]
            for value in values:
                setattr(info.domain_discrete.values.add(), *_plain(value, dist))
    return info


def _plain(value: ParamValue, dist: Distribution | None) -> tuple[str, bool | float | str]:
    """A value, and the field of a protobuf ``Value`` that it goes to.

    HParams wants one type per parameter: choices of several types become text.
    """
    if isinstance(dist, Choice) and len({_field(each) for each in dist.values}) > 1:
        return "string_value", str(value)
    if isinstance(value, bool | str):
        return _field(value), value
    return (_field(value), str(value)) if value is None else (_field(value), float(value))


def _field(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "bool_value"
    return "number_value" if isinstance(value, int | float) else "string_value"


def _summary(kind: str, data: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata

    data.version = metadata.PLUGIN_DATA_VERSION
    plugin = SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString(deterministic=True)
    )
    tag = f"_hparams_/{kind}"
    tensor = metadata.NULL_TENSOR
    told = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag=tag, metadata=told, tensor=tensor)])


_ENDED = ("complete", "pruned", "failed", "cancelled")


@dataclass(slots=True)
class _Rank:
    """What one rank of one trial writes."""

    file: EventFile
    attempt: int = 0
    """Of the last report."""
    has_metric: bool = False
    last_step: int = -1


class RunFiles:
    """Fed with a ledger's events from the first one on; :meth:`flush` writes.

    Parameters
    ----------
    directory : Path
        Where the event files go.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._state = RunState()
        self._own: EventFile | None = None
        self._ranks: dict[tuple[int, int], _Rank] = {}
        self._written: set[EventFile] = set()
        self._best: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, as far as it was fed."""
        return self._state.end is not None

    def add(self, event: Event) -> None:
        """Take the next event of the ledger."""
        n_late = self._state.n_late
        fold(self._state, event)
        if self._state.n_late > n_late:
            return  # of an attempt that was over
        match event:
            case RunSubmitted():
                self._begin(event)
            case TrialCreated(trial=trial):
                self._open_trial(trial, event)
            case Reported():
                self._report(event)
            case AttemptFinished():
                self._finish(event)

    def flush(self) -> None:
        """Bring the files up to date.  Raises OSError."""
        for file in self._written:
            file.flush()
        self._written.clear()

    # -- inside --------------------------------------------------------------------------------

    @property
    def _spec(self) -> RunSpec:
        if self._state.spec is None:
            raise ValueError("a ledger begins with RunSubmitted")
        return self._state.spec

    def _begin(self, event: RunSubmitted) -> None:
        study = event.spec.verb.study
        self._own = self._file(".", event.at_s)
        if study is not None:
            self._write(self._own, event.at_s, experiment(study, event.at_s))

    def _open_trial(self, trial: int, event: TrialCreated) -> None:
        if self._spec.verb.can.has_ranks:
            return
        rank = self._rank(trial, 0, event.at_s)
        if event.params:
            space = _space_of(self._spec)
            group = f"{self._spec.run_id} trial {trial}"
            start = session_start(event.params, space, group, event.at_s)
            self._write(rank.file, event.at_s, start)

    def _report(self, event: Reported) -> None:
        if event.rank and not self._spec.verb.can.has_ranks:
            return  # rank 0 speaks for a trial
        rank = self._rank(event.trial, event.rank, event.at_s)
        if event.attempt != rank.attempt:
            if rank.attempt:
                self._restart(rank.file, event)
            rank.attempt, rank.has_metric = event.attempt, False
        self._scalars(rank.file, event.metrics, event.step, event.at_s)
        objective = self._spec.verb.objective
        rank.has_metric |= objective is not None and objective.metric in event.metrics
        rank.last_step = event.step

    def _finish(self, event: AttemptFinished) -> None:
        if self._spec.verb.can.has_ranks:
            return
        trial = self._state.trials.get(event.trial)
        if trial is None or trial.state not in _ENDED:
            return  # another attempt follows
        rank = self._rank(event.trial, 0, event.at_s)
        objective = self._spec.verb.objective
        metric = None if objective is None else objective.metric
        if metric is not None and event.value is not None and not rank.has_metric:
            self._scalars(rank.file, {metric: event.value}, rank.last_step + 1, event.at_s)
        if trial.param_names:
            self._write(rank.file, event.at_s, session_end(event.outcome, event.at_s))
        best = self._state.best_value
        if best is not None and best != self._best and self._own is not None:
            self._best = best
            self._scalars(self._own, {f"best/{metric}": best}, self._state.n_finished, event.at_s)

    def _rank(self, trial: int, rank: int, at_s: float) -> _Rank:
        found = self._ranks.get((trial, rank))
        if found is None:
            found = _Rank(self._file_of(trial, rank, at_s))
            self._ranks[trial, rank] = found
        return found

    def _file_of(self, trial: int, rank: int, at_s: float) -> EventFile:
        if not self._spec.verb.can.has_ranks:
            return self._file(f"trial-{trial:04d}", at_s)
        if rank or self._own is None:
            return self._file(f"rank-{rank}", at_s)
        return self._own

    def _file(self, folder: str, at_s: float) -> EventFile:
        # TensorBoard takes files with this word in their names, and reads them in their order.
        name = f"events.out.tfevents.{int(self._spec.created_at_s):010d}.{self._spec.run_id}"
        file = EventFile(self._directory / folder / name, at_s)
        self._written.add(file)
        return file

    def _restart(self, file: EventFile, event: Reported) -> None:
        """The attempt before has reported steps that this one repeats: they are void."""
        from tensorboard.compat.proto import event_pb2

        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(file, event_pb2.Event(wall_time=event.at_s, step=event.step, session_log=log))

    def _scalars(self, file: EventFile, metrics: dict[str, float], step: int, at_s: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        self._write(file, at_s, Summary(value=values), step)

    def _write(self, file: EventFile, at_s: float, summary: Any, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Written

        self._add(file, Written(wall_time=at_s, step=step, summary=summary))

    def _add(self, file: EventFile, event: Any) -> None:
        file.add(event)
        self._written.add(file)


def _space_of(spec: RunSpec) -> Space:
    return spec.verb.study.space if spec.verb.study else {}
