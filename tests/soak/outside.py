"""A host that does not see the network of pods: what it has to do with them goes by way of the API
server, over connections that can be reset.  For a lab on this machine, whose root this is.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import psutil

__all__ = ["outside_of_pods", "reset_connections"]

_PODS = "10.78.0.0/15"
"""Of the lab: its pods and its services."""
_API_PORT = 6443


@contextlib.contextmanager
def outside_of_pods() -> Iterator[None]:
    """This process, and what it starts from now on, connects to no pod; others go on as before."""
    group = 1_000_000 + os.getpid()
    before = os.getgroups()
    owner = ["-m", "owner", "--gid-owner", str(group), "--suppl-groups"]
    rule = ["OUTPUT", "-d", _PODS, "-p", "tcp", "--syn", *owner, "-j", "REJECT"]
    subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        os.setgroups([*before, group])
        yield
    finally:
        os.setgroups(before)
        subprocess.run(["iptables", "-D", *rule], check=True)


def reset_connections(process: psutil.Process) -> int:
    """Break those of a process to the API server, both ends of each; returns how many they were."""
    found = [
        each
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_ESTABLISHED and each.raddr and each.raddr.port == _API_PORT
    ]
    for each in found:
        local = ["src", each.laddr.ip, "sport", "=", str(each.laddr.port)]
        subprocess.run(["ss", "-K", "-tn", *local], check=True, capture_output=True, timeout=10)
    return len(found)
