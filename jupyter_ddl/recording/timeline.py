"""A recording as what its views show at each moment: folded by the one reducer, packed.

A page without Python plays it (``views/live/player.js``), and so does a notebook, with the same
modules: the kernel has nothing to do while it plays.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from jupyter_ddl.controller.telemetry_store import History, TelemetryStore
from jupyter_ddl.errors import JupyterDDLError, RecordingError
from jupyter_ddl.ledger.history import history_of
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import snapshot_of, trial_rows
from jupyter_ddl.protocol.events import AttemptStarted, Event, Reported
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, WorkerSample
from jupyter_ddl.recording.answers import answers_of
from jupyter_ddl.recording.lines import (
    Displayed,
    Fact,
    Measured,
    Printed,
    Recording,
    in_time,
    time_of,
)

__all__ = ["MAX_TIMELINE_BYTES", "Machines", "difference", "last_snapshot", "timeline_of"]


# What changed between two JSON values, so that hundreds of pictures fit into one file.
#
# ``views/live/timeline.js`` applies it.  A patch is ``[value]`` (it is this now), ``[]`` (a key
# that is gone), or an object: of a dictionary, patches by key; of a list, patches by index, with
# ``-`` for how many go from the front first, and ``+`` for those that come behind.

_MAX_SHIFT = 8


def difference(old: Any, new: Any) -> Any:
    """The patch that turns ``old`` into ``new``; None when they are equal.

    Both are made of dictionaries with text as keys, lists, text, numbers, booleans and None.
    """
    if old is new or (old == new and type(old) is type(new)):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_dicts(old, new)
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return _of_lists(old, new)
    return [new]


def _of_dicts(old: dict[str, Any], new: dict[str, Any]) -> Any:
    patch: dict[str, Any] = {key: [] for key in old if key not in new}
    for key, value in new.items():
        change = difference(old[key], value) if key in old else [value]
        if change is not None:
            patch[key] = change
    return patch or None


def _of_lists(old: list[Any], new: list[Any]) -> Any:
    if len(old) == len(new):
        changes = [difference(a, b) for a, b in zip(old, new, strict=True)]
        patch = {str(n): change for n, change in enumerate(changes) if change is not None}
        if not patch:
            return None
        if 2 * len(patch) <= len(new) or isinstance(new[0], dict):
            return patch
    for shift in range(min(len(old), _MAX_SHIFT)):
        kept = len(old) - shift
        if kept <= len(new) and old[shift:] == new[:kept]:
            slid: dict[str, Any] = {}
            if shift:
                slid["-"] = shift
            if new[kept:]:
                slid["+"] = new[kept:]
            return slid
    return [new]


# The machines of a recording as a view shows them: those of a cluster, without its bounds.


class Machines:
    """Takes samples in the order of their times; the controller's own parts draw them."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store = TelemetryStore()
        self._histories: dict[str, History] = {}
        self._seq = 0
        self._view: ClusterTelemetry | None = None

    def add(self, sample: WorkerSample) -> None:
        """One measurement of one worker."""
        if sample.worker not in self._histories:
            self._histories[sample.worker] = History()
            self._store.keep(self._histories)
        self._store.add(msgspec.msgpack.encode(sample))
        self._histories[sample.worker].add(sample)

    def view(self, at_s: float) -> ClusterTelemetry | None:
        """What the machines did of late; None before the first measurement.

        The same object until there is something new.
        """
        if self._store.seq == self._seq:
            return self._view
        self._seq = self._store.seq
        view = self._store.view(self._run_id, at_s, cpu_hours=None, gpu_hours=None)
        shown = (sample.worker for sample in view.workers)
        histories = tuple(self._histories[name].points(name) for name in shown)
        self._view = msgspec.structs.replace(view, histories=histories)
        return self._view


MAX_TIMELINE_BYTES = 1_500_000
"""Packed; with less detail when it must."""
_MIN_STEP_S = 0.2
_N_PRINTED = 2000
_REST_S = 0.5
"""The end is shown for so long after the last fact."""
# Pictures, whether machines are shown, whether output is: the first that fits is taken.
_DETAILS = ((400, True, True), (200, True, True), (100, True, False), (100, False, False))


def timeline_of(recording: Recording) -> bytes:
    """The timeline as JSON, packed by gzip: the same recording gives the same bytes.

    Raises
    ------
    RecordingError
        Its facts do not follow from each other, or it does not fit into
        :data:`MAX_TIMELINE_BYTES` even with few pictures.
    """
    size = 0
    answers: Any = None
    for n_pictures, has_machines, has_output in _DETAILS:
        timeline = _Timeline(recording, n_pictures, has_machines, has_output)
        made = timeline.made()
        answers = answers or timeline.answers()
        text = json.dumps({**made, "answers": answers}, separators=(",", ":"))
        packed = gzip.compress(text.encode(), mtime=0)
        if len(packed) <= MAX_TIMELINE_BYTES:
            return packed
        size = len(packed)
    raise RecordingError(
        f"drawing the recording of run {recording.head.run_id} failed: {size:,} bytes are over the "
        f"limit of {MAX_TIMELINE_BYTES:,}; record a shorter run"
    )


def last_snapshot(recording: Recording) -> RunSnapshot:
    """The run as it was at the end of the recording.

    Raises
    ------
    RecordingError
        Its facts do not follow from each other.
    """
    state = RunState()
    for fact in recording.facts:
        _fold(recording, state, fact)
    return snapshot_of(state, max(map(time_of, recording.facts)))


def _events(recording: Recording) -> list[Event]:
    return [f for f in recording.facts if not isinstance(f, Measured | Printed | Displayed)]


def _fold(recording: Recording, state: RunState, fact: Fact) -> None:
    if isinstance(fact, Measured | Printed | Displayed):
        return
    try:
        fold(state, fact)
    except (JupyterDDLError, KeyError, ValueError) as error:
        raise RecordingError(
            f"playing the recording of run {recording.head.run_id} failed: {error}; export it again"
        ) from error


class _Timeline:
    """One go at making a timeline."""

    def __init__(
        self, recording: Recording, n_pictures: int, has_machines: bool, has_output: bool
    ) -> None:
        self._recording = recording
        self._n_pictures = n_pictures
        self._has_machines = has_machines
        self._has_output = has_output
        self._state = RunState()
        self._machines = Machines(recording.head.run_id)
        self._trials: dict[str, Any] = {}
        self._touched: set[int] = set()
        self._printed: list[list[Any]] = []
        self._contents: dict[str, list[str]] = {}
        self._heard: dict[str, float] = {}
        self._telemetry: ClusterTelemetry | None = None
        self._shown: Any = None

    def made(self) -> dict[str, Any]:
        head = self._recording.head
        facts = self._recording.facts
        began_s = time_of(facts[0])
        ended_s = max(map(time_of, facts)) + _REST_S
        old: Any = {}
        frames = []
        for at_s in self._moments(began_s, ended_s):
            new = self._picture(at_s)
            patch = difference(old, new)
            if patch is not None:
                frames.append([round(at_s - began_s, 2), patch])
            old = new
        return {
            "format": head.format,
            "version": head.version,
            "origin": head.origin,
            "run_id": head.run_id,
            "began_s": began_s,
            "length_s": round(ended_s - began_s, 2),
            "contents": self._contents,
            "history": self._history(ended_s),
            "frames": frames,
        }

    def answers(self) -> Any:
        """Once all is folded."""
        return _plain(answers_of(self._state, _events(self._recording)))

    def _history(self, ended_s: float) -> Any:
        events = _events(self._recording)
        samples = [fact.sample for fact in self._recording.facts if isinstance(fact, Measured)]
        return _plain(history_of(events, samples if self._has_machines else (), ended_s))

    def _moments(self, began_s: float, ended_s: float) -> Iterator[float]:
        """Fold fact after fact, and yield the times at which a picture is due."""
        step_s = max(_MIN_STEP_S, (ended_s - began_s) / self._n_pictures)
        due_s = began_s
        for at_s, fact in in_time(self._recording.facts):
            while at_s > due_s and self._state.spec is not None:
                yield due_s
                # Nothing happens in between: no picture is needed before the next fact's.
                due_s += step_s * max(1, math.floor((at_s - due_s) / step_s))
            self._take(fact)
        yield ended_s

    def _take(self, fact: Fact) -> None:
        if isinstance(fact, Measured):
            if self._has_machines:
                self._machines.add(fact.sample)
        elif isinstance(fact, Printed):
            if self._has_output:
                self._printed += [[fact.trial, fact.rank, line] for line in fact.lines]
                del self._printed[:-_N_PRINTED]
        elif isinstance(fact, Displayed):
            if self._has_output:
                self._contents[fact.file] = [fact.mime, fact.content]
        else:
            _fold(self._recording, self._state, fact)
            trial = getattr(fact, "trial", None)
            if trial is not None:
                self._touched.add(trial)
            if isinstance(fact, AttemptStarted):
                self._heard.clear()
            elif isinstance(fact, Reported):
                self._heard[str(fact.rank)] = fact.at_s

    def _picture(self, at_s: float) -> dict[str, Any]:
        """All that is shown at one moment; rows of trials stand in a table of their own."""
        state = self._state
        if state.end is not None:
            self._touched.update(state.trials)
        numbers = sorted(self._touched & state.trials.keys())
        for row in _plain(trial_rows(state, numbers)):
            self._trials[str(row["number"])] = row
        self._touched.clear()
        snapshot = _plain(snapshot_of(state, at_s))
        snapshot["rows"] = [row["number"] for row in snapshot["rows"]]
        # By trial, so that one that ends between others is a small change.
        snapshot["curve"] = {str(trial): value for trial, value in snapshot["curve"]}
        snapshot["pruned"] = {str(trial): 1 for trial in snapshot["pruned"]}
        snapshot["learning"] = {str(curve["trial"]): curve for curve in snapshot["learning"]}
        telemetry = self._machines.view(at_s)
        if telemetry is not self._telemetry:
            # Rounded where it was measured.
            shown = msgspec.json.decode(msgspec.json.encode(telemetry))
            self._telemetry, self._shown = telemetry, shown
        is_group = bool(snapshot["ranks"])
        return {
            "snapshot": snapshot,
            "trials": dict(self._trials),
            "telemetry": self._shown,
            "printed": list(self._printed),
            "outputs": self._outputs(),
            "heard": dict(self._heard) if is_group else {},
        }

    def _outputs(self) -> dict[str, Any]:
        """What trials show at this moment, as far as the recording has it."""
        return {
            str(trial): [
                {"trial": trial, "file": file, "at_s": 0}
                for file in shown
                if file in self._contents
            ]
            for trial, shown in self._state.outputs.items()
        }


def _plain(value: Any) -> Any:
    """As JSON carries it, with as many digits as can be seen."""
    return json.loads(msgspec.json.encode(value), parse_float=_short)


def _short(text: str) -> float:
    value = float(text)
    return round(value, 2) if abs(value) >= 1e6 else float(f"{value:.6g}")
