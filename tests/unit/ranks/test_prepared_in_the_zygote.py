"""What a rank needs of a message's types is worked out before it is forked."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import socket
from jupyter_ddl.ranks import zygote  # what every rank is forked from
from jupyter_ddl.protocol import reading
from jupyter_ddl.ranks.channel import RankChannel, TerminationHandler
from jupyter_ddl.ranks.stopping import StopFlag

n_before = reading._decoder.cache_info().misses
ours, theirs = socket.socketpair()
channel = RankChannel(ours, TerminationHandler(StopFlag()))
theirs.close()
assert channel.receive() is None
print(reading._decoder.cache_info().misses - n_before)
"""


def test_a_rank_makes_no_decoder_of_what_its_worker_sends() -> None:
    """That took a quarter of the CPU time until a cell's first line, in each fork."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "0"
