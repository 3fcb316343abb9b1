"""Ranks of a group in processes of their own, without a cluster; each tells what it came to."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

__all__ = ["answer", "answers_of"]

_GROUP_S = 200.0
"""How long three processes may take to import torch, and to train."""


def answer(rank: int, found: Any, answers: Any) -> None:
    """End this rank with what it has to say, as JSON, or with its traceback."""
    answers.put((rank, json.dumps(found)))
    answers.close()
    answers.join_thread()
    os._exit(0)


def answers_of(target: Any, folder: Path, n_ranks: int) -> list[Any]:
    """What each rank has to say; ``target`` takes its number, the folder, and what it answers to.

    The group meets at the file ``group`` of the folder.
    """
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    ranks = [
        context.Process(target=target, args=(rank, str(folder), answers), daemon=True)
        for rank in range(n_ranks)
    ]
    for each in ranks:
        each.start()
    try:
        got = dict(answers.get(timeout=_GROUP_S) for _ in ranks)
    finally:
        for each in ranks:
            each.kill()
            each.join()
        answers.close()
    return [json.loads(got[rank]) for rank in range(n_ranks)]
