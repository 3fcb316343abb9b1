"""Twenty groups that meet at the same moment on one host: no rank ever meets another group's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

_N_GROUPS = 20

PROGRAM = """
import json, os, queue, socket, sys
import torch
import torch.distributed as dist
from jupyter_ddl.driving.assignments import place_ranks
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.ranks.group import RankGroup

torch.set_num_threads(1)
n_groups, trial = int(sys.argv[1]), TrialAssignment(0, 1, {}, 1)


def live(place, link, number):
    joins = queue.SimpleQueue()

    def announce(ready):
        link.sendall(json.dumps([f"{ready.host}:{ready.port}", ready.store]).encode())
        addresses, stores = zip(*json.loads(link.recv(1000)))
        joins.put(JoinGroup("r", 0, 1, addresses, stores[0]))

    group = RankGroup(place, trial, announce, joins, sys.exit)
    group.enter(with_torch=True)
    for _ in range(5):
        mine = torch.tensor([float(number), 1.0])
        dist.all_reduce(mine)
        assert mine.tolist() == [2.0 * number, 2.0], (number, mine)
    group.leave()
    link.sendall(os.environ["MASTER_PORT"].encode())


groups = []
for number in range(n_groups):
    base = RankPlace(group_id=f"g{number}", timeout_s=60.0)
    links = []
    for place in place_ranks(["w", "w"], ["127.0.0.1", "127.0.0.1"], base):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                live(place, theirs, number)
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        links.append((pid, ours))
    groups.append(links)

# All have a store or a port by now; only then is any group let in.
addresses = [[json.loads(link.recv(1000)) for _, link in links] for links in groups]
for links, of_group in zip(groups, addresses):
    for _, link in links:
        link.sendall(json.dumps(of_group).encode())
ports = [[link.recv(1000).decode() for _, link in links] for links in groups]
codes = [os.waitpid(pid, 0)[1] for links in groups for pid, _ in links]
print(json.dumps({"ports": ports, "codes": codes}))
"""


def test_twenty_groups_at_once_have_twenty_stores(home: object, tmp_path: Path) -> None:
    path = tmp_path / "groups.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(path), str(_N_GROUPS)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["codes"] == [0] * (2 * _N_GROUPS), done.stderr[-2000:]
    assert all(first == second for first, second in result["ports"])
    assert len({first for first, _ in result["ports"]}) == _N_GROUPS
