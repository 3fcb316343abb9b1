"""CPU-hours and GPU-hours that runs have held so far, and their ranks' peaks of memory.  Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from jupyter_ddl.events.telemetry import RankSample, Usage

__all__ = ["UsageMeter"]

_N_REMEMBERED = 200
_N_RANKS = 64
_HOUR_S = 3600.0


class _Account:
    __slots__ = ("gpu_s", "peaks", "slot_s")

    def __init__(self) -> None:
        self.slot_s = 0.0
        self.gpu_s = 0.0
        self.peaks: dict[int, int] = {}


class UsageMeter:
    """Adds up what is held between looks.

    Parameters
    ----------
    cpus_per_slot : int
        CPUs that a run holds with each slot.
    """

    def __init__(self, cpus_per_slot: int, now_s: float) -> None:
        self._cpus_per_slot = cpus_per_slot
        self._looked_at_s = now_s
        self._slots: Mapping[str, int] = {}
        self._gpus: Mapping[str, int] = {}
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._forgotten = _Account()

    def look(self, now_s: float, slots: Mapping[str, int], gpus: Mapping[str, int]) -> None:
        """Charge the time since the last look for what was held then, and note what is held now.

        Parameters
        ----------
        now_s : float
            Monotonic seconds.
        slots, gpus : mapping
            Run id → number held.
        """
        passed_s = max(0.0, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        for run_id, n_slots in self._slots.items():
            self._account(run_id).slot_s += n_slots * passed_s
        for run_id, n_gpus in self._gpus.items():
            self._account(run_id).gpu_s += n_gpus * passed_s
        self._slots, self._gpus = dict(slots), dict(gpus)

    def see(self, ranks: Iterable[RankSample]) -> None:
        """Remember peaks of memory."""
        for rank in ranks:
            if rank.memory_bytes is not None and rank.rank < _N_RANKS:
                peaks = self._account(rank.run_id).peaks
                peaks[rank.rank] = max(rank.memory_bytes, peaks.get(rank.rank, 0))

    def of(self, run_id: str) -> Usage | None:
        """What a run has held up to the last look; None: nothing is known of it."""
        account = self._accounts.get(run_id)
        if account is None:
            return None
        peaks = account.peaks
        return Usage(
            cpu_hours=self._cpu_hours(account),
            gpu_hours=account.gpu_s / _HOUR_S,
            peak_memory_bytes=tuple(peaks.get(rank) for rank in range(max(peaks, default=-1) + 1)),
        )

    def total(self) -> tuple[float, float]:
        """CPU-hours and GPU-hours of all runs of this controller."""
        accounts = [self._forgotten, *self._accounts.values()]
        gpu_s = sum(account.gpu_s for account in accounts)
        return sum(map(self._cpu_hours, accounts)), gpu_s / _HOUR_S

    def _cpu_hours(self, account: _Account) -> float:
        return account.slot_s * self._cpus_per_slot / _HOUR_S

    def _account(self, run_id: str) -> _Account:
        account = self._accounts.get(run_id)
        if account is None:
            account = self._accounts[run_id] = _Account()
            idle = [known for known in self._accounts if known not in self._slots]
            for known in idle[: len(self._accounts) - _N_REMEMBERED]:
                self._forget(known)
        return account

    def _forget(self, run_id: str) -> None:
        account = self._accounts.pop(run_id, None)
        if account is not None:
            self._forgotten.slot_s += account.slot_s
            self._forgotten.gpu_s += account.gpu_s
