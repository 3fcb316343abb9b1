"""Hosts without a name service, or whose own name leads elsewhere: what counts are addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.api import train
from jupyter_ddl.client.clusters import connect_cluster
from tests.integration.backends.foreign import foreign_cluster
from tests.integration.network.wire import Host, wire_of
from tests.leaks import Home

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_NAMELESS = """
hostname {name}
mount --bind {hosts} /etc/hosts
mount --bind /dev/null /etc/resolv.conf
exec "$@"
"""
_CELL = """
import socket, torch, torch.distributed as dist
try:
    found = socket.gethostbyname(socket.gethostname())
except OSError:
    found = "unknown"
given = torch.ones(1)
dist.all_reduce(given)
total = given.item()
"""


def _nameless(host: Host, work: Path, name: str, lines: str) -> tuple[str, ...]:
    """How to begin a command there: under this name, of which no more is known than the lines."""
    hosts = work / f"hosts-{name}"
    hosts.write_text(lines)
    script = _NAMELESS.format(name=name, hosts=hosts)
    return (*host.enter, "unshare", "--mount", "--uts", "sh", "-e", "-c", script, "sh")


def test_ranks_meet_where_names_lead_nowhere_or_elsewhere(home: Home) -> None:
    with wire_of() as wire:
        place, lost, astray = wire.host(), wire.host(), wire.host()
        wire.host(is_here=True)
        with foreign_cluster(home, 0, tls=False, host=place.address, enter=place.enter) as foreign:
            for host, name, lines in (
                (lost, "ddl-lost", ""),
                (astray, "ddl-astray", "192.0.2.7 ddl-astray\n"),
            ):
                enter = _nameless(host, home.work, name, lines)
                foreign.add_workers(1, host=host.address, enter=enter)
            cluster = connect_cluster(foreign.address)
            run = train(_CELL, 2, namespace={}, bring=("total", "found"), max_restarts=0)
            assert {run.value("found", rank=rank) for rank in range(2)} == {"unknown", "192.0.2.7"}
            assert [run.value("total", rank=rank) for rank in range(2)] == [2.0, 2.0]
            assert {row.host for row in run.snapshot().ranks} == {lost.address, astray.address}
            cluster.stop()
