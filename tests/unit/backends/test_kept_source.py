"""When the source of zygotes is started again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.backends import zygote_source
from jupyter_ddl.backends.zygote_source import SourceProcess
from jupyter_ddl.worker import zygote_source as workers_side


def test_one_that_ends_at_once_is_started_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, starts_s = 0.0, []
    status: int | None = 1

    def popen(command: list[str], **_: Any) -> Any:
        starts_s.append(now_s)
        return SimpleNamespace(poll=lambda: status, kill=lambda: None, wait=lambda: None)

    monkeypatch.setattr(zygote_source.subprocess, "Popen", popen)
    monkeypatch.setattr(zygote_source.time, "monotonic", lambda: now_s)
    source = SourceProcess({})
    for now_s in map(float, range(1, 200)):  # noqa: B007 - what the clock shows
        source.keep()
    assert starts_s == [0.0, 1.0, 2.0, 5.0, 12.0, 27.0, 58.0, 118.0, 178.0]
    now_s = 300.0  # it has run for two minutes
    source.keep()
    now_s = 301.0
    source.keep()
    assert starts_s[-2:] == [300.0, 301.0]
    for status in (None, 0):  # noqa: B007 - it runs; it has seen that nobody is left who could ask
        now_s += 1000.0
        source.keep()
    assert starts_s[-1] == 301.0
    source.close()
    assert not workers_side.has_source()
