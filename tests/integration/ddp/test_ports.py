"""Sockets of trainings: none that another user, or another machine, gets an answer from."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.client.group import open_group

pytestmark = pytest.mark.integration

_LOOK = """
import socket
import psutil
import torch
import torch.distributed as dist

def answer_of(address):
    try:
        with socket.create_connection(address, timeout=1.0):
            return "let in"
    except OSError as error:
        return type(error).__name__

def open_sockets():
    dist.all_reduce(torch.ones(1))
    mine = psutil.Process().net_connections(kind="inet")
    found = [each.laddr for each in mine if each.status == "LISTEN"]
    answers = [[each.ip, answer_of(each)] for each in found]
    dist.barrier()
    return answers

"""
_SCRIPT = """
import os
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
dist.init_process_group("gloo", rank=rank(), world_size=world_size())
open_sockets()
"""
_HOROVOD = "import jupyter_ddl.horovod as hvd\nhvd.init()\nopen_sockets()\n"
_NOBODY_ANSWERS = [["127.0.0.1", "TimeoutError"]]


def _is_closed(values: list[Any]) -> None:
    """Gloo's socket is there, on loopback, and nobody who comes now is let in."""
    assert all(value[:1] == _NOBODY_ANSWERS for value in values), values
    assert all(socket == _NOBODY_ANSWERS[0] for value in values for socket in value), values


@pytest.mark.parametrize("code", ["open_sockets()", _SCRIPT, _HOROVOD])
def test_every_port_of_a_training_is_on_loopback_and_answers_no_stranger(
    cluster: object, code: str
) -> None:
    _is_closed(train(_LOOK + code, 2, namespace={}).values)


def test_every_port_of_a_persistent_group_is_on_loopback_and_answers_no_stranger(
    cluster: object,
) -> None:
    with open_group(2) as group:
        _is_closed(group.execute(_LOOK + "open_sockets()").values)
