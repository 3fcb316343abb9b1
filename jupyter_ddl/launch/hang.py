"""Who is to blame when no rank of a group makes a step any more.  Pure.

Three pieces of evidence: the state of each rank's process, its use of the CPU, and its stacks.  A
rank that is stopped is to blame; where all wait, the one that waits in another place than the
others is.  A rank that computes is given 20 hang timeouts, even in a C call that holds the GIL;
then it is to blame if the group has made steps before, if others wait for it, or if the user has
said how long a step may take.  Ranks that all compute and never told of a step are let be without
``--hang-timeout``: nothing tells an endless loop from long work that reports nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from jupyter_ddl.launch.stacks import Place, read_place
from jupyter_ddl.protocol.events import Probe

__all__ = ["Blame", "Sight", "judge"]

_BUSY_SHARE = 0.3
"""CPUs from which on a rank computes; one that waits in gloo takes next to nothing."""
_COMPUTING_FACTOR = 20.0
"""A rank that computes without a step is given so many hang timeouts."""


class Sight(msgspec.Struct, frozen=True):
    """One rank that has not ended, when no step was made for the hang timeout."""

    rank: int
    phase: str
    n_steps: int
    probe: Probe | None
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
            return _blame(sight, sights, "does not answer, nor does its worker")
    absent = [sight for sight in sights if sight.phase in ("loading", "rendezvous")]
    if absent:
        late = [sight for sight in absent if sight.phase == "loading"] or absent
        return _blame(late[0], sights, f"is still at its {late[0].phase}")
    idle = [sight for sight in sights if not sight.place.waits_in]
    if idle:
        doing = f" in {idle[0].place.function}()" if idle[0].place.function else ""
        return _blame(idle[0], sights, f"makes no progress{doing}")
    return _blame_one_of_waiting(sights)


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


def _blame(sight: Sight, sights: Sequence[Sight], what: str, why: str = "") -> Blame:
    line = sight.place.line
    at = f" at line {line}" if line is not None else ""
    text = f"rank {sight.rank} {what}{at}"
    for group in _others(sight, sights):
        text += f"; {group}"
    if why:
        text += f": {why}"
    return Blame(sight.rank, text, line)


def _others(culprit: Sight, sights: Sequence[Sight]) -> list[str]:
    """The other ranks by what they do: ``ranks 0, 2 wait in all_reduce at line 9``."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for sight in sights:
        if sight.rank != culprit.rank:
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
