"""A rank's beats: how many, of what, and what they cost."""

from __future__ import annotations

from jupyter_ddl.protocol.events import Beat
from jupyter_ddl.ranks.heartbeat import Heartbeat
from tests.until import until


def test_a_change_of_phase_is_told_at_once_and_steps_within_two_seconds() -> None:
    sent: list[Beat] = []
    beats = Heartbeat(0, 1, sent.append)
    beats.begin("cell")
    assert [(beat.phase, beat.n_steps) for beat in sent] == [("cell", 0)]
    beats.step()
    until(lambda: len(sent) == 2, 2.5, "a beat")
    assert sent[1].n_steps == 1
    beats.close()


def test_a_rank_that_makes_no_progress_is_silent_and_none_speaks_after_its_end() -> None:
    sent: list[Beat] = []
    beats = Heartbeat(0, 1, sent.append)
    beats.begin("cell")
    beats.close()
    beats.step()
    beats.begin("leaving")
    assert len(sent) == 1


def test_steps_of_any_torch_optimizer_count_from_when_torch_is_there() -> None:
    import torch

    sent: list[Beat] = []
    beats = Heartbeat(0, 1, sent.append)
    beats.begin("cell")
    weights = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    for _ in range(3):
        weights.sum().backward()
        optimizer.step()
    beats.begin("leaving")
    beats.close()
    assert sent[-1].n_steps == 3
    optimizer.step()
    assert sent[-1].n_steps == 3
