"""Hosts of their own on one machine: network namespaces, and the wire between them.

Each host has one interface; what goes from one to another passes, packet by packet, through the
test's process, which may lose it, delay it or cut it off.  TCP at both ends is the kernel's own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.until import until

__all__ = ["Host", "Link", "Wire", "wire_of"]

_TUNSETIFF = 0x400454CA
_TUN, _NO_PI = 0x0001, 0x1000
_MTU = 9000
_TCP = 6
_RST = 0x04
_QUEUE_S = 2.0
"""What a slow link holds back; it loses the rest, as a router's queue does."""
_LATE_PACKETS = 100_000

_Flow: TypeAlias = tuple[str, int, str, int]


@dataclass(frozen=True)
class Host:
    """Where a process has an address of its own."""

    address: str
    enter: tuple[str, ...]
    """The beginning of a command that is to run there; empty: the test's own host."""


@dataclass(frozen=True)
class Link:
    """What happens to the packets between two hosts, in either direction."""

    lost: float = 0.0
    late_s: float = 0.0
    bytes_per_s: float | None = None
    is_cut: bool = False


class Wire:
    """Carries packets between the hosts that it makes."""

    def __init__(self) -> None:
        self._net = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
        self._random = random.Random(0)
        self._files: dict[str, int] = {}
        self._holders: list[subprocess.Popen[bytes]] = []
        self._links: dict[frozenset[str], Link] = {}
        self._free_at_s: dict[tuple[str, str], float] = {}
        self._next_bytes: dict[_Flow, int] = {}
        """What each end of a connection awaits: who names it may end the connection."""
        self._forgotten: set[_Flow] = set()
        self._late: list[tuple[float, int, str, bytes]] = []
        self._n_carried = 0
        self._changing = threading.Lock()
        self._awake, self._waker = os.pipe()
        self._poll = select.epoll()
        self._poll.register(self._awake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._thread.start()

    # -- hosts -----------------------------------------------------------------------------------

    def host(self, *, is_here: bool = False) -> Host:
        """A new one; or the test's own, given an address on the wire."""
        number = len(self._files) + 1
        address = f"{self._net}.{number}"
        name = f"ddl{os.getpid() % 100_000}w{number}"
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_PI))
        enter: tuple[str, ...] = ()
        if not is_here:
            holder = subprocess.Popen(
                ["unshare", "--net", "setpriv", "--pdeathsig", "KILL", "sleep", "infinity"]
            )
            self._holders.append(holder)
            _wait_for_namespace(holder.pid)
            _call("ip", "link", "set", name, "netns", str(holder.pid))
            enter = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
            _call(*enter, "ip", "link", "set", "lo", "up")
        _call(*enter, "ip", "address", "add", f"{address}/24", "dev", name)
        _call(*enter, "ip", "link", "set", name, "mtu", str(_MTU), "up")
        with self._changing:
            self._files[address] = file
        self._poll.register(file, select.EPOLLIN)
        return Host(address, enter)

    # -- faults ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def between(self, one: Host, other: Host, link: Link) -> Iterator[None]:
        """Have the packets between two hosts meet this."""
        pair = frozenset((one.address, other.address))
        self._links[pair] = link
        try:
            yield
        finally:
            del self._links[pair]

    def reset(self, one: Host, other: Host) -> int:
        """End all connections between two hosts with a reset at both ends; how many."""
        return self._end(one, other, (one, other))

    def half_open(self, one: Host, other: Host) -> int:
        """End all connections at ``one``; what ``other`` says on them is answered by nobody."""
        with self._changing:
            self._forgotten.update(self._flows(one, other))
        return self._end(one, other, (one,))

    def _flows(self, one: Host, other: Host) -> list[_Flow]:
        pair = {one.address, other.address}
        return [flow for flow in self._next_bytes if {flow[0], flow[2]} == pair]

    def _end(self, one: Host, other: Host, ends: tuple[Host, ...]) -> int:
        with self._changing:
            flows = self._flows(one, other)
            told = [flow for flow in flows if flow[0] in {end.address for end in ends}]
            for flow in told:
                self._write(flow[0], _reset_for(flow, self._next_bytes[flow]))
            for flow in flows:
                del self._next_bytes[flow]
        return len(told) // len(ends)

    # -- packets ---------------------------------------------------------------------------------

    def _carry(self) -> None:
        while True:
            wait_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else -1
            for file, _ in self._poll.poll(wait_s):
                if file == self._awake:
                    return
                self._take(file)
            while self._late and self._late[0][0] <= time.monotonic():
                _, _, address, packet = heapq.heappop(self._late)
                self._write(address, packet)

    def _take(self, file: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                packet = os.read(file, 65536)
                if packet[0] >> 4 == 4:
                    with self._changing:
                        self._pass(packet)

    def _pass(self, packet: bytes) -> None:
        source, target = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
        link = self._links.get(frozenset((source, target)), Link())
        if packet[9] == _TCP and self._is_forgotten(source, target, packet):
            return
        if target not in self._files or link.is_cut or self._random.random() < link.lost:
            return
        at_s = time.monotonic()
        if link.bytes_per_s is not None:
            begins_s = max(at_s, self._free_at_s.get((source, target), 0.0))
            if begins_s - at_s > _QUEUE_S:
                return
            at_s = self._free_at_s[source, target] = begins_s + len(packet) / link.bytes_per_s
        if at_s + link.late_s <= time.monotonic():
            self._write(target, packet)
        elif len(self._late) < _LATE_PACKETS:
            self._n_carried += 1
            heapq.heappush(self._late, (at_s + link.late_s, self._n_carried, target, packet))

    def _is_forgotten(self, source: str, target: str, packet: bytes) -> bool:
        head = (packet[0] & 15) * 4
        source_port, target_port, _, awaited = struct.unpack_from("!HHII", packet, head)
        flow = (source, source_port, target, target_port)
        flags = packet[head + 13]
        if flags & 0x02:  # SYN: another connection of the same name
            self._forgotten.discard(flow)
        if flow in self._forgotten:
            return True
        if flags & 0x05:  # FIN, RST
            self._next_bytes.pop(flow, None)
        elif flags & 0x10:  # ACK
            self._next_bytes[flow] = awaited
        return False

    def _write(self, address: str, packet: bytes) -> None:
        try:
            os.write(self._files[address], packet)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO, errno.ENOBUFS):
                raise

    def close(self) -> None:
        """End it; the hosts go with their processes."""
        os.write(self._waker, b"x")
        self._thread.join()
        self._poll.close()
        for file in (*self._files.values(), self._awake, self._waker):
            os.close(file)
        for holder in self._holders:
            holder.kill()
            holder.wait()


@contextlib.contextmanager
def wire_of() -> Iterator[Wire]:
    """A wire; skips where none can be made."""
    if os.getuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        with open("/dev/net/tun", "rb"):
            pass
        _call("unshare", "--net", "ip", "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no wire between namespaces can be made here: {error}")
    wire = Wire()
    try:
        yield wire
    finally:
        wire.close()


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _wait_for_namespace(pid: int) -> None:
    own = Path("/proc/self/ns/net").readlink()
    until(lambda: Path(f"/proc/{pid}/ns/net").readlink() != own, 5, "a namespace")


def _reset_for(flow: _Flow, number: int) -> bytes:
    """A reset that the first end of ``flow`` takes for the other end's."""
    address, port, peer, peer_port = flow
    source, target = socket.inet_aton(peer), socket.inet_aton(address)
    tcp = struct.pack("!HHIIBBHHH", peer_port, port, number, 0, 5 << 4, _RST, 0, 0, 0)
    pseudo = source + target + struct.pack("!BBH", 0, _TCP, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", _checksum(pseudo + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, _TCP, 0, source, target)
    return ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:] + tcp


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
