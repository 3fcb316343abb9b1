"""How a round of a rank group ended, from how its ranks did.  Pure, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.fold_group import CUT_OFF, NEVER_MET
from jupyter_ddl.protocol.events import Failure, HangVerdict, Outcome, RankEnded

__all__ = ["conclusion_of", "is_consequence", "loss_of"]

_TRANSPORT_ERRORS = frozenset(
    {
        "RuntimeError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "LaunchError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "BrokenPipeError",
    }
)
_CONSEQUENCES = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "connection timed out",
    "no route to host",
    "network is unreachable",
    "connection was likely closed",
    "failed to recv, got 0 bytes",
    "wait timeout after",
    "timed out waiting",
    "socket timeout",
    "monitoredbarrier",
    "for the others of its group",
    "the client socket has timed out",
    "communicator was aborted",
    "remote process exited or there was a network error",
)
"""What torch 2.13 with gloo says, collected by killing ranks in collectives, in a backward pass, in
the rendezvous and in the store; the last two are nccl's."""
_BROKEN = (
    "connection reset by peer",
    "connection timed out",
    "no route to host",
    "network is unreachable",
)


def is_consequence(end: RankEnded) -> bool:
    """Whether a rank seems to have failed only because another one was gone."""
    failure = end.failure
    if failure is None or failure.kind != "exception":
        return False
    if failure.type_name not in _TRANSPORT_ERRORS:
        return False
    message = failure.message.lower()
    return any(words in message for words in _CONSEQUENCES)


def _is_broken(end: RankEnded) -> bool:
    """Whether it met what a process that ends, or closes a connection, does not bring about."""
    message = "" if end.failure is None else end.failure.message.lower()
    return any(words in message for words in _BROKEN)


def conclusion_of(
    ends: Sequence[RankEnded],
    told: frozenset[int],
    hang: HangVerdict | None,
    *,
    is_apart: bool = False,
) -> tuple[Outcome, Failure | None]:
    """The outcome of the round, and its first cause when that is a failure.

    Parameters
    ----------
    ends
        One per rank.
    told
        Ranks that the launcher has told to end: what became of them is a consequence.
    hang
        The verdict, when the launcher has ended the round for a hang.
    is_apart
        Whether the ranks are on several hosts: then what is between them may break.
    """
    if hang is not None and hang.is_outside:
        return "evicted", Failure("launch", CUT_OFF, hang.text, line=hang.line, rank=hang.rank)
    if hang is not None:
        return "failed", Failure("hang", "Hang", hang.text, line=hang.line, rank=hang.rank)
    evicted = [end for end in ends if end.outcome == "evicted"]
    if evicted:
        return "evicted", min(evicted, key=_when).failure
    free = [end for end in ends if end.rank not in told]
    direct = [end for end in free if end.outcome == "failed" and not is_consequence(end)]
    if direct:
        return "failed", _first_cause(direct, ends)
    stopped = [end for end in free if end.outcome not in ("failed", "complete")]
    if stopped:
        return min(stopped, key=_when).outcome, None
    late = [end for end in ends if end.outcome == "failed" and not is_consequence(end)]
    failed = late or [end for end in ends if end.outcome == "failed"]
    broken = is_apart and not late and failed and _is_broken(min(failed, key=_when))
    if broken and not any(end.outcome == "complete" for end in ends):
        cause = _first_cause(failed, ends)
        text = "" if cause is None else f"{cause.message}: the network between hosts broke"
        return "evicted", Failure("launch", CUT_OFF, text, rank=min(failed, key=_when).rank)
    if failed:
        return "failed", _first_cause(failed, ends)
    others = [end for end in ends if end.outcome != "complete"]
    return (min(others, key=_when).outcome if others else "complete"), None


def loss_of(rank: int, why: str, *, have_met: bool) -> Failure:
    """Why a rank was lost through no fault of its own; what counts is whether all had met."""
    if have_met:
        return Failure("launch", "WorkerLost", f"rank {rank}: {why}", rank=rank)
    text = f"rank {rank} was lost before all ranks had met: {why}"
    return Failure("launch", NEVER_MET, text, rank=rank)


def _when(end: RankEnded) -> tuple[float, int]:
    return end.at_s, end.rank


def _first_cause(candidates: Sequence[RankEnded], ends: Sequence[RankEnded]) -> Failure | None:
    first = min(candidates, key=_when)
    if first.failure is None:
        return None
    n_more = sum(end.outcome == "failed" for end in ends) - 1
    more = f" ({format_counted(n_more, 'more rank')} failed)" if n_more else ""
    done = [str(end.rank) for end in ends if end.outcome == "complete"]
    if done and is_consequence(first):
        who = f"rank {done[0]} was" if len(done) == 1 else f"ranks {', '.join(done)} were"
        more += f"; {who} finished with the cell by then: do all ranks make the same calls?"
    text = f"rank {first.rank}: {first.failure.message}{more}"
    return msgspec.structs.replace(first.failure, message=text, rank=first.rank)
