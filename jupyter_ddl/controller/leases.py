"""When a controller ends by itself.  Pure; times are seconds of one monotonic clock."""

from __future__ import annotations

import msgspec

__all__ = ["Lease"]


class Lease(msgspec.Struct):
    """Idle timeout and maximum age of one cluster."""

    started_s: float
    idle_timeout_s: float
    max_age_s: float
    last_active_s: float
    """When a run was last active or a client last asked for more than how it is."""

    def begin(self, now_s: float) -> None:
        """The cluster is ready: its time starts now."""
        self.started_s = self.last_active_s = now_s

    def touch(self, now_s: float) -> None:
        """A client asked for something, or a run is active."""
        self.last_active_s = max(self.last_active_s, now_s)

    def idle_left_s(self, now_s: float, n_active_runs: int) -> float | None:
        """Seconds until the idle timeout; None while a run is active."""
        if n_active_runs:
            return None
        return max(0.0, self.last_active_s + self.idle_timeout_s - now_s)

    def age_left_s(self, now_s: float) -> float:
        return max(0.0, self.started_s + self.max_age_s - now_s)

    def expired(self, now_s: float, n_active_runs: int) -> str | None:
        """Why the cluster is to end now, or None."""
        if self.age_left_s(now_s) <= 0:
            return f"its maximum age of {self.max_age_s:.0f} s is reached"
        if self.idle_left_s(now_s, n_active_runs) == 0:
            return f"it has been idle for {self.idle_timeout_s:.0f} s"
        return None
