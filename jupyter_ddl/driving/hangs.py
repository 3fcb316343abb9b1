"""Follows the steps of a rank group, and says who is to blame when none are made any more.  Pure.

Three pieces of evidence: the state of each rank's process, its use of the CPU, and its stacks.  A
rank that is stopped is to blame; where all wait, the one that waits in another place than the
others is.  A rank that computes is given 20 hang timeouts, even in a C call that holds the GIL;
then it is to blame if the group has made steps before, if others wait for it, or if the user has
said how long a step may take.  Ranks that all compute and never told of a step are let be without
``--hang-timeout``: nothing tells an endless loop from long work that reports nothing.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from jupyter_ddl.protocol.cells import RankSeen
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Beat,
    Probe,
    RankEvent,
    RendezvousReady,
    Reported,
)
from jupyter_ddl.protocol.group import ranks_label

__all__ = [
    "Blame",
    "Place",
    "Sight",
    "StepWatch",
    "grouped",
    "judge",
    "read_place",
    "whereabouts",
    "who_waits",
]

# -- what a rank is at, by its stacks (faulthandler's: the innermost frame first) ---------------

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_MAIN_FRAMES = (("ranks/main.py", "execute_all"),)
"""The frame that only the main thread of a rank has."""
_FORKING_FRAMES = (("ranks/zygote.py", "serve"), ("ranks/zygote_source.py", "serve"))
"""Those that also the zygote has, which is to fork the rank, and the source of zygotes."""
_COLLECTIVE_FILES = (
    "torch/distributed/",
    "torch/nn/parallel/distributed.py",
    "jupyter_ddl/ranks/group_votes.py",
    "jupyter_ddl/ranks/strategies/local_sgd/circle.py",
    "jupyter_ddl/ranks/strategies/company.py",
)
_BACKWARD_FILES = ("torch/autograd/",)
_WRAPPERS = frozenset({"wrapper", "inner", "_fn", "decorate_context"})


class Place(msgspec.Struct, frozen=True):
    """What the main thread of a rank is at."""

    line: int | None = None
    """Innermost line of the cell; None: it is not in the cell."""
    function: str = ""
    """Innermost function, when it is not the cell itself."""
    waits_in: str = ""
    """The collective (``all_reduce``, ``barrier``, ``backward`` …), empty when it is in none."""


def read_place(stacks: str, filename: str = "In [") -> Place:
    """Where the main thread is.

    Parameters
    ----------
    filename : str
        How the cell's file name begins.
    """
    frames = _frames_with(_MAIN_FRAMES, stacks)
    return _place_of(frames, filename) if frames else Place()


def whereabouts(state: str, stacks: str, host: str) -> str:
    """Where one is that has not come to the cell: ``at line 2 of /lib/slow.py on 10.0.0.1``."""
    if state in ("T", "t"):
        return f"stopped on {host}"
    for frame in _frames_with(_FORKING_FRAMES, stacks):
        if not frame["file"].startswith("<frozen "):  # the machinery of imports
            return f"at line {frame['line']} of {frame['file']} on {host}"
    return f"on {host}"


def _frames_with(known: Sequence[tuple[str, str]], stacks: str) -> list[re.Match[str]]:
    """The frames of the thread that has one of these."""
    for block in stacks.split("\n\n"):
        frames = [found for text in block.splitlines() if (found := _FRAME.match(text))]
        if any(
            f["file"].endswith(file) and f["name"] == name for f in frames for file, name in known
        ):
            return frames
    return []


def _place_of(frames: list[re.Match[str]], filename: str) -> Place:
    above: list[re.Match[str]] = []
    for frame in frames:
        if frame["file"].startswith(filename):
            function = above[0]["name"] if above else ""
            return Place(int(frame["line"]), function, _collective(above))
        above.append(frame)
    return Place(None, frames[0]["name"], _collective(frames))


def _collective(frames: list[re.Match[str]]) -> str:
    for frame in frames:
        if frame["name"] in _WRAPPERS:
            continue
        if any(part in frame["file"] for part in _COLLECTIVE_FILES):
            return str(frame["name"])
    if any(part in frame["file"] for frame in frames for part in _BACKWARD_FILES):
        # The collectives of a backward pass are started by C++: no Python frame names them.
        return "backward"
    return ""


# -- who is to blame -----------------------------------------------------------------------------

_BUSY_SHARE = 0.3
"""CPUs from which on a rank computes; one that waits in gloo takes next to nothing."""
_COMPUTING_FACTOR = 20.0
"""A rank that computes without a step is given so many hang timeouts."""


class Sight(msgspec.Struct, frozen=True):
    """One rank that has not ended, when no step was made for the hang timeout."""

    rank: int
    phase: str
    n_steps: int
    probe: Probe | RankSeen | None
    """None: its worker did not answer."""

    @property
    def place(self) -> Place:
        return Place() if self.probe is None else read_place(self.probe.stacks)

    @property
    def is_stopped(self) -> bool:
        return self.probe is not None and self.probe.state in ("T", "t")

    @property
    def waits_for_others(self) -> bool:
        if self.place.waits_in:
            return True
        return self.phase == "rendezvous" and not self.computes

    @property
    def computes(self) -> bool:
        probe = self.probe
        # On a host with too much to do, who computes is seen waiting for a CPU.
        busy = probe is not None and (probe.cpu_share >= _BUSY_SHARE or probe.state == "R")
        # A collective on a GPU is waited for by spinning.
        return busy and not self.place.waits_in


class Blame(msgspec.Struct, frozen=True):
    rank: int
    text: str
    line: int | None = None
    is_outside: bool = False
    """Not the rank, but its worker or the network to another host."""


def judge(
    sights: Sequence[Sight], silent_s: float, timeout_s: float, *, is_given: bool = True
) -> Blame | None:
    """The rank that the others wait for; None while some rank computes and may be waited for.

    Parameters
    ----------
    sights
        Ranks that have not ended, in order.
    silent_s
        Seconds since the last step of any rank.
    timeout_s
        The hang timeout.
    is_given
        Whether the user has said how long a step may take.
    """
    for sight in sights:
        if sight.is_stopped:
            return _blame(sight, sights, "is stopped (SIGSTOP)")
    computing = [sight for sight in sights if sight.computes]
    if computing:
        is_evident = is_given or any(s.n_steps or s.waits_for_others for s in sights)
        if not is_evident or silent_s < _COMPUTING_FACTOR * timeout_s:
            return None
        return _blame(computing[0], sights, f"has computed for {silent_s:.0f} s without a step")
    for sight in sights:
        if sight.probe is None:
            text = "does not answer, nor does its worker"
            return _blame(sight, sights, text, is_outside=True)
    for sight in sights:
        if sight.probe is not None and sight.probe.cut_off:
            what = f"waits for {', '.join(sight.probe.cut_off)}"
            why = "nothing that it sends there is acknowledged, the network is cut"
            return _blame(sight, sights, what, why, is_outside=True)
    absent = [sight for sight in sights if sight.phase in ("loading", "rendezvous")]
    if absent:
        late = [sight for sight in absent if sight.phase == "loading"] or absent
        return _blame(late[0], sights, f"is still at its {late[0].phase}")
    idle = [sight for sight in sights if not sight.place.waits_in]
    if idle:
        doing = f" in {idle[0].place.function}()" if idle[0].place.function else ""
        return _blame(idle[0], sights, f"makes no progress{doing}")
    return _blame_one_of_waiting(sights)


def who_waits(sights: Sequence[Sight]) -> str:
    """What each rank is at, if some wait for ranks that do nothing; else empty."""
    if any(sight.computes or sight.probe is None for sight in sights):
        return ""
    waiting = [sight for sight in sights if sight.place.waits_in]
    idle = [sight for sight in sights if not sight.place.waits_in]
    if not waiting or not idle:
        return ""
    return "; ".join(grouped([*waiting, *idle]))


def _blame_one_of_waiting(sights: Sequence[Sight]) -> Blame:
    """All ranks wait for others: who waits elsewhere, or is behind?"""
    places = Counter((sight.place.line, sight.place.waits_in) for sight in sights)
    if len(places) > 1:
        rarest = min(places.values())
        odd = [s for s in sights if places[s.place.line, s.place.waits_in] == rarest][-1]
        why = "every rank must make the same calls in the same order"
        return _blame(odd, sights, f"waits in {odd.place.waits_in}", why)
    behind = min(sights, key=lambda sight: sight.n_steps)
    why = "do all ranks make the same calls, with tensors of the same size?"
    return _blame(behind, sights, f"waits in {behind.place.waits_in}", why)


def _blame(
    sight: Sight, sights: Sequence[Sight], what: str, why: str = "", *, is_outside: bool = False
) -> Blame:
    line = sight.place.line
    at = f" at line {line}" if line is not None else ""
    text = f"rank {sight.rank} {what}{at}"
    for group in _others(sight, sights):
        text += f"; {group}"
    if why:
        text += f": {why}"
    return Blame(sight.rank, text, line, is_outside)


def _others(culprit: Sight, sights: Sequence[Sight]) -> list[str]:
    """The other ranks by what they do: ``ranks 0, 2 wait in all_reduce at line 9``."""
    return grouped([sight for sight in sights if sight.rank != culprit.rank])


def grouped(sights: Sequence[Sight]) -> list[str]:
    """What ranks do, those together that do the same: ``ranks 0, 2 wait in all_reduce``."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for sight in sights:
        groups.setdefault((_activity(sight), sight.place.line), []).append(sight.rank)
    return [_told(activity, line, ranks) for (activity, line), ranks in groups.items()]


def _activity(sight: Sight) -> str:
    if sight.place.waits_in:
        return f"wait in {sight.place.waits_in}"
    if sight.is_stopped:
        return "are stopped"
    if sight.phase != "cell":
        return f"are at their {sight.phase}"
    return "compute" if sight.computes else "make no progress"


_SINGULAR = {"wait": "waits", "are": "is", "compute": "computes", "make": "makes", "their": "its"}


def _told(activity: str, line: int | None, ranks: list[int]) -> str:
    who = f"ranks {', '.join(map(str, ranks))}"
    if len(ranks) == 1:
        who = f"rank {ranks[0]}"
        activity = " ".join(_SINGULAR.get(word, word) for word in activity.split())
    at = f" at line {line}" if line is not None else ""
    return f"{who} {activity}{at}"


# -- steps -----------------------------------------------------------------------------------------

_MIN_TIMEOUT_S = 60.0
_MEDIAN_FACTOR = 10.0
_FIRST_STEP_FACTOR = 5.0
"""Data is downloaded and kernels are compiled before the first step."""
_LATE_S = 15.0
"""A rank that has not come to the cell within it is told of, and who waits for it; then again
after twice that time, until it is known who waits in the cell."""
_N_DURATIONS = 64
_AGAIN_S = 5.0


class StepWatch:
    """One round of one group.  All times are the watcher's own monotonic clock, in seconds.

    Parameters
    ----------
    timeout_s : float, optional
        Without a step of any rank for so long, the group is looked at.  None: 10 times the median
        step, at least 60 s, and 5 minutes before the first step.
    """

    def __init__(self, n_ranks: int, timeout_s: float | None, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._running = set(range(n_ranks))
        self._phases = dict.fromkeys(range(n_ranks), "loading")
        self._n_steps = dict.fromkeys(range(n_ranks), 0)
        self._last_beat_s: dict[int, float] = {}
        self._moved_s: dict[int, float] = {}
        self._began_s = now_s
        self._durations: deque[float] = deque(maxlen=_N_DURATIONS)
        self._last_step_s = now_s
        self._quiet_until_s = now_s
        self._late_s = _LATE_S
        self._late_due_s: float | None = now_s + _LATE_S

    def moved(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and when it last moved."""
        return {
            rank: (self._phases[rank], self._moved_s.get(rank, self._began_s))
            for rank in self._running
        }

    def observe(self, rank: int, event: RankEvent, now_s: float) -> None:
        """Take note of what a rank has sent."""
        if not isinstance(event, Probe):
            self._moved_s[rank] = now_s
        match event:
            case Reported() | AttemptStarted() | RendezvousReady():
                self._last_step_s = now_s
            case Beat(phase=phase, n_steps=n_steps):
                self._beat(rank, phase, n_steps, now_s)
            case AttemptFinished():
                self._running.discard(rank)
                self._last_step_s = now_s

    def ended(self, rank: int) -> None:
        """A rank is there no more, whether it has told so or not."""
        self._running.discard(rank)

    def begin_again(self, rank: int) -> None:
        """A rank that has ended is started once more."""
        self._running.add(rank)
        self._phases[rank] = "loading"
        self._n_steps[rank] = 0
        self._last_beat_s.pop(rank, None)

    def _beat(self, rank: int, phase: str, n_steps: int, now_s: float) -> None:
        made = n_steps - self._n_steps[rank]
        if made > 0:
            since = self._last_beat_s.get(rank)
            if since is not None:
                self._durations.append((now_s - since) / made)
            self._last_beat_s[rank] = now_s
        if made > 0 or phase != self._phases[rank]:
            self._last_step_s = now_s
        self._n_steps[rank] = n_steps
        self._phases[rank] = phase

    @property
    def timeout_s(self) -> float:
        """The hang timeout as of now."""
        if any(self._phases[rank] in ("loading", "rendezvous") for rank in self._running):
            return max(_MIN_TIMEOUT_S, self._timeout_s or 0.0)
        if self._timeout_s is not None:
            return self._timeout_s
        if not self._durations:
            return _FIRST_STEP_FACTOR * _MIN_TIMEOUT_S
        return max(_MIN_TIMEOUT_S, _MEDIAN_FACTOR * median(self._durations))

    @property
    def late_due_s(self) -> float | None:
        """When :meth:`is_late` turns true."""
        return self._late_due_s

    def is_late(self, now_s: float) -> bool:
        """True once: when it is time to say who has not come to the cell, or to a first step."""
        if self._late_due_s is None or now_s < self._late_due_s:
            return False
        self._late_due_s = None
        return not any(self._n_steps.values())

    def look_again(self, now_s: float) -> None:
        """Nothing is known yet of who waits in the cell: be late again, in as long as it took."""
        while self._began_s + self._late_s <= now_s:
            self._late_s *= 2
        self._late_due_s = self._began_s + self._late_s

    @property
    def are_in_cell(self) -> bool:
        return all(self._phases[rank] == "cell" for rank in self._running)

    def absent(self, where: Mapping[int, str]) -> str:
        """Which ranks have not come to the cell, and which wait for them; empty: none.

        Parameters
        ----------
        where
            What :func:`whereabouts` has found, by rank.
        """
        phases = {rank: self._phases[rank] for rank in sorted(self._running)}
        loading = [rank for rank, phase in phases.items() if phase == "loading"]
        meeting = [rank for rank, phase in phases.items() if phase == "rendezvous"]
        after = f"after {self._late_s:.0f} s"
        late, at = loading or meeting, dict[str, list[int]]()
        for rank in late:
            if rank in where:
                at.setdefault(where[rank], []).append(rank)
        places = "; ".join(f"{ranks_label(ranks)} {place}" for place, ranks in at.items())
        places = places and f" ({places})"
        if not loading:
            meet = "meets the others" if len(meeting) == 1 else "meet"
            return f"{ranks_label(meeting)} still {meet} {after}{places}" if meeting else ""
        unheard = not (self._moved_s.keys() | where.keys()) & set(loading)
        doing = "not begun by a worker" if unheard else "loading what it needs"
        if len(loading) > 1:
            doing = doing.replace("it needs", "they need")
        verb = "is" if len(loading) == 1 else "are"
        wait = "waits" if len(meeting) == 1 else "wait"
        others = f"; {ranks_label(meeting)} {wait} for that" if meeting else ""
        return f"{ranks_label(loading)} {verb} still {doing} {after}{places}{others}"

    @property
    def due_s(self) -> float | None:
        """When the ranks are to be probed, if nothing is heard of them until then."""
        if not self._running:
            return None
        return max(self._last_step_s + self.timeout_s, self._quiet_until_s)

    def is_due(self, now_s: float) -> bool:
        """Whether the ranks are to be probed now."""
        due_s = self.due_s
        return due_s is not None and now_s >= due_s

    def who_waits(self, probes: dict[int, Probe]) -> str:
        """Who waits for whom before the first step, by what was seen of the running ranks."""
        text = "" if any(self._n_steps.values()) else who_waits(self._sights(probes))
        return text and f"no step after {self._late_s:.0f} s: {text}"

    def _sights(self, probes: dict[int, Probe]) -> list[Sight]:
        return [
            Sight(rank, self._phases[rank], self._n_steps[rank], probes.get(rank))
            for rank in sorted(self._running)
        ]

    def judge(self, probes: dict[int, Probe], now_s: float) -> Blame | None:
        """Who hangs, by what was seen of the running ranks; None: look again later.

        A step that was made while they were being looked at saves them, unless one is stopped: that
        one went on for a moment only to write its stacks.
        """
        stopped = any(probes[rank].state == "T" for rank in self._running & probes.keys())
        if not stopped and not self.is_due(now_s):
            return None
        is_given = self._timeout_s is not None
        blame = judge(
            self._sights(probes), now_s - self._last_step_s, self.timeout_s, is_given=is_given
        )
        if blame is None:
            self._quiet_until_s = now_s + max(_AGAIN_S, self.timeout_s / 2)
        return blame

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self._running)
