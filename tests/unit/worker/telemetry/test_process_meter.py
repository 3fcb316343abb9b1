"""CPU, memory and disk of a process tree, measured at real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from jupyter_ddl.worker.telemetry.process_meter import NetworkMeter, ProcessMeter, TreeUse
from tests.until import until

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.read(1)
print("ready", flush=True)
child.wait()
"""
BUSY_CHILD = """
import sys
held = bytearray(200 << 20)
sys.stdout.write("x"); sys.stdout.flush()
while True:
    pass
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process whose child holds 200 MiB and takes all the CPU time that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, BUSY_CHILD], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = psutil.Process(process.pid).children()
        yield process
        for victim in (*children, process):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()


def test_a_tree_is_charged_for_what_its_children_use(parent: subprocess.Popen[str]) -> None:
    meter = ProcessMeter(os.getpid())
    wanted = {os.getpid(): None, parent.pid: None}
    first = meter.poll(wanted)
    assert first[parent.pid].cpu is None
    assert first[parent.pid].memory_bytes >= 200 << 20
    until(lambda: _cpu_s(parent) > 0.3, 20.0, "CPU time of the child")
    used = meter.poll(wanted)
    assert used[parent.pid].cpu > 0.05
    assert used[os.getpid()].cpu >= used[parent.pid].cpu
    assert used[os.getpid()].memory_bytes > used[parent.pid].memory_bytes


def test_what_was_adopted_counts_as_a_child_and_so_does_all_below_it(
    parent: subprocess.Popen[str],
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input('up')"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as root:
        assert root.stdout is not None
        root.stdout.read(1)  # one that has only just begun may have no memory yet
        meter = ProcessMeter(root.pid)
        wanted = {root.pid: None, parent.pid: None}
        assert parent.pid not in meter.poll(wanted)
        used = meter.poll(wanted, adopted=[parent.pid])
        assert used[parent.pid].memory_bytes >= 200 << 20
        assert used[root.pid].memory_bytes > used[parent.pid].memory_bytes
        near = meter.poll({root.pid: 100 << 20}, adopted=[parent.pid])[root.pid]
        assert near.memory_bytes >= 200 << 20
        root.kill()


def _cpu_s(parent: subprocess.Popen[str]) -> float:
    return sum(child.cpu_times().user for child in psutil.Process(parent.pid).children())


def test_cpu_is_time_taken_by_time_passed() -> None:
    now = iter((100.0, 102.0))
    meter = ProcessMeter(os.getpid(), clock=lambda: next(now))
    meter.poll({os.getpid(): None})
    began_s = time.process_time()
    while time.process_time() - began_s < 0.4:
        pass
    used = meter.poll({os.getpid(): None})[os.getpid()]
    assert used.cpu == pytest.approx((time.process_time() - began_s) / 2.0, abs=0.06)


def test_a_process_that_has_ended_is_left_out(parent: subprocess.Popen[str]) -> None:
    meter = ProcessMeter(os.getpid())
    meter.poll({parent.pid: None})
    for child in psutil.Process(parent.pid).children():
        child.kill()
    parent.wait()
    assert meter.poll({parent.pid: None, os.getpid(): None}).keys() == {os.getpid()}


def test_near_its_limit_memory_that_processes_share_counts_once() -> None:
    code = (
        "import os, sys\n"
        "held = bytearray(300 << 20)\n"
        "pids = [os.fork() for _ in range(2)]\n"
        "if all(pids): print('ready', flush=True)\n"
        "sys.stdin.read(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        meter = ProcessMeter(process.pid)
        roughly = meter.poll({process.pid: None})[process.pid].memory_bytes
        exactly = meter.poll({process.pid: 1 << 30})[process.pid].memory_bytes
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
    assert roughly > 900 << 20
    assert exactly < 500 << 20


def test_network_rates_begin_with_the_second_look_and_are_never_negative() -> None:
    network = NetworkMeter()
    assert network.poll() == (None, None)
    received, sent = network.poll()
    assert received is not None
    assert received >= 0
    assert sent is not None
    assert sent >= 0
    assert TreeUse().cpu is None
