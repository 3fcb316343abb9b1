"""Whether the kernel that feeds a fit is still there: it may also compute between its fits."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_ddl.store.processes import ProcessIdentity, is_alive
from jupyter_ddl.verbs.fit import Fit

__all__ = ["FitClient"]

_LOOK_AFTER_S = 5.0


class FitClient:
    """Used on the controller's loop only.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, verb: Fit, clock: Callable[[], float] = time.monotonic) -> None:
        self._process = ProcessIdentity(
            verb.client_pid, verb.client_started_at_s, verb.client_boot_id
        )
        self._clock = clock
        self._seen_s = clock()
        self.is_gone = False

    def heard(self) -> None:
        """It has asked for something."""
        self._seen_s = self._clock()

    def poll(self) -> None:
        """See whether its process lives, if it has not been heard of for a while."""
        now = self._clock()
        if not self.is_gone and now - self._seen_s >= _LOOK_AFTER_S:
            self._seen_s = now
            self.is_gone = not is_alive(self._process)
