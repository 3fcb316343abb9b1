"""``--profile N``: torch.profiler's trace of N training steps of a rank, as a file of its run.

The first step of an optimizer prepares the profiler, the second is its warm-up, the next N are
recorded.  What follows costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jupyter_ddl.formats import format_bytes, format_counted
from jupyter_ddl.protocol.events import Notice, Operation, ProfileTaken, RankEvent

__all__ = ["N_PROFILED", "StepProfiler", "costliest"]

N_PROFILED = 4
"""Trials of a run that are profiled: those with the lowest numbers."""
_MAX_TRACE_BYTES = 64 << 20
_N_OPERATIONS = 20
_QUIET = ("KINETO_LOG_LEVEL", "99")
"""Or torch writes lines about the profiler into what the cell prints."""


class StepProfiler:
    """Of one attempt; made and used on the thread that executes the cell.

    Parameters
    ----------
    n_steps : int
        How many are recorded.
    send : callable
        Gets the trace once it is a file, or a notice of why there is none.
    on_step : callable
        Called at each step that the profiler slows down.
    """

    def __init__(
        self,
        n_steps: int,
        who: tuple[int, int, int],
        run_dir: Path,
        send: Callable[[RankEvent], None],
        on_step: Callable[[], None],
    ) -> None:
        self._n_wanted = n_steps
        self._who = who
        self._folder = run_dir / "profiles"
        self._send = send
        self._on_step = on_step
        self._thread_id = threading.get_ident()
        self._n_seen = 0
        self._profile: Any = None
        self._hook: Any = None

    def begin(self) -> None:
        """Wait for the first step; the cell's packages are imported."""
        module: Any = sys.modules.get("torch.optim.optimizer")
        if module is not None:
            self._hook = module.register_optimizer_step_post_hook(self._stepped)

    def close(self) -> None:
        """The attempt is over: save what was recorded until here."""
        n_recorded = self._n_seen - 2
        if self._profile is not None and n_recorded > 0:
            self._finish(n_recorded)
        elif self._n_seen < self._n_wanted + 2:
            self._discard()
            self._tell(
                f"made {format_counted(self._n_seen, 'optimizer step')} of torch; expected at "
                f"least 3: one to begin with, one to warm up and one to record"
            )
        self._unhook()

    def _stepped(self, *_: object) -> None:
        if threading.get_ident() != self._thread_id:
            return
        self._n_seen += 1
        self._on_step()
        if self._n_seen == 1:
            self._start()
        elif self._profile is not None:
            self._profile.step()
            if self._n_seen == self._n_wanted + 2:
                self._finish(self._n_wanted)

    def _start(self) -> None:
        os.environ.setdefault(*_QUIET)
        import torch

        if torch.autograd._profiler_enabled():  # a second one would end the first
            self._n_seen = self._n_wanted + 2  # told once
            self._unhook()
            self._tell("has no trace: the cell itself uses torch's profiler; leave one of them out")
            return
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else [])]
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=self._n_wanted, repeat=1)
        self._profile = torch.profiler.profile(activities=activities, schedule=schedule)
        self._profile.start()

    def _finish(self, n_steps: int) -> None:
        profile, self._profile = self._profile, None
        self._unhook()
        trial, attempt, rank = self._who
        name = f"trial-{trial}-a{attempt}-r{rank}.json.gz"
        path = self._folder / name
        try:
            profile.stop()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            profile.export_chrome_trace(str(path))
            size = path.stat().st_size
        except (OSError, RuntimeError) as error:
            self._tell(f"has no trace: making {path} failed: {error}")
            return
        if size > _MAX_TRACE_BYTES:
            path.unlink()
            self._tell(
                f"has no trace: that of {format_counted(n_steps, 'step')} is {format_bytes(size)}, "
                f"expected at most {format_bytes(_MAX_TRACE_BYTES)}; profile fewer steps"
            )
            return
        found = profile.key_averages()
        self._send(
            ProfileTaken(
                trial=trial,
                attempt=attempt,
                rank=rank,
                at_s=time.time(),
                n_steps=n_steps,
                file=name,
                size_bytes=size,
                cpu_s=sum(each.self_cpu_time_total for each in found) / 1e6,
                device_s=sum(_device_us(each) for each in found) / 1e6,
                operations=costliest(found),
            )
        )

    def _discard(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            with contextlib.suppress(RuntimeError):  # nobody wants it: it ends no attempt
                profile.stop()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _tell(self, text: str) -> None:
        trial, _, rank = self._who
        self._send(
            Notice(time.time(), f"--profile {self._n_wanted}: rank {rank} of trial {trial} {text}")
        )


def costliest(found: Iterable[Any]) -> tuple[Operation, ...]:
    """The operations that take longest by themselves, on the device first where there is one.

    Parameters
    ----------
    found : iterable of torch.autograd.profiler_util.FunctionEventAvg
        Times in µs.
    """
    known = [each for each in found if not each.key.startswith("ProfilerStep")]
    known.sort(key=lambda each: (_device_us(each), each.self_cpu_time_total), reverse=True)
    if not any(map(_device_us, known)):
        known.sort(key=lambda each: each.self_cpu_time_total, reverse=True)
    return tuple(
        Operation(
            name=each.key[:200],
            n_calls=each.count,
            cpu_s=each.self_cpu_time_total / 1e6,
            device_s=_device_us(each) / 1e6,
        )
        for each in known[:_N_OPERATIONS]
    )


def _device_us(each: Any) -> float:
    return float(getattr(each, "self_device_time_total", 0.0))
