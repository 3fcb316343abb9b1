"""Connections of a process that lead nowhere, as the kernel tells them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["silent_peers"]

_ESTABLISHED = "01"
_SYN_SENT = "02"
"""It was never connected: the peer is not heard of from the start."""
_RETRANSMITTING = "01"


def silent_peers(pid: int, hosts: Collection[str]) -> tuple[str, ...]:
    """Which of these hosts acknowledge nothing that the process sends them.  Blocking.

    What was sent and is being sent again, the request to connect included: a peer that is merely
    slow, or does not read, acknowledges all the same, since its kernel does.  Where the system does
    not tell, none.
    """
    wanted = {address: host for host in hosts for address in _addresses(host)}
    mine = set(_inodes(pid))
    found = {wanted[row.peer] for row in _rows(pid) if row.inode in mine and row.peer in wanted}
    return tuple(sorted(found))


class _Row:
    """One connection whose last words were not acknowledged and are being repeated."""

    __slots__ = ("inode", "peer")

    def __init__(self, inode: int, peer: str) -> None:
        self.inode = inode
        self.peer = peer


def _rows(pid: int) -> Iterator[_Row]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                # https://docs.kernel.org/networking/proc_net_tcp.html
                _, _, peer, state, queues, timer, n_repeated, _, _, inode, *_ = line.split()
                repeats = timer.partition(":")[0] == _RETRANSMITTING and int(n_repeated, 16) > 0
                waits = bool(int(queues.partition(":")[0], 16))
                if repeats and (state == _SYN_SENT or (state == _ESTABLISHED and waits)):
                    yield _Row(int(inode), _address(peer.partition(":")[0]))


def _address(written: str) -> str:
    """An address as the kernel writes it: 32 bits at a time, in the order of this machine."""
    raw = bytes.fromhex(written)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    found = ipaddress.ip_address(raw)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _addresses(host: str) -> set[str]:
    with contextlib.suppress(ValueError):
        return {str(ipaddress.ip_address(host))}
    with contextlib.suppress(OSError):
        return {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    return set()


def _inodes(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, inode = str(path.readlink()).partition(":")
                if kind == "socket":
                    yield int(inode.strip("[]"))
