"""Sockets of frameworks that only these tests have: none of them answers a stranger."""

from __future__ import annotations

import pytest

from tests.live_kernel import LiveKernel

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

_JAX = """%%distribute ddp -n 2 --no-init
import socket, psutil, jax, jax.numpy as jnp
from jax.experimental import multihost_utils

def answer_of(address):
    try:
        with socket.create_connection(address[:2], timeout=1.0) as stranger:
            stranger.settimeout(1.0)
            stranger.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")
            return stranger.recv(100)
    except OSError:
        return b""

jax.distributed.initialize()
both = multihost_utils.process_allgather(jnp.ones(1) * jax.process_index())
mine = psutil.Process().net_connections(kind="inet")
found = [each.laddr for each in mine if each.status == "LISTEN"]
assert len(found) == 2 - jax.process_index()  # the coordinator, and gloo of each process
assert {each.ip.removeprefix("::ffff:") for each in found} == {"127.0.0.1"}
assert [answer_of(each) for each in found] == [b""] * len(found)
multihost_utils.sync_global_devices("all were asked")
both.sum().item()
"""


def test_no_socket_of_jax_answers_a_stranger(real_kernel: LiveKernel) -> None:
    pytest.importorskip("jax")
    real_kernel.run(_JAX, timeout_s=200).check()
