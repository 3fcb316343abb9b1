"""The store of a rank group: whom it is open to, and how soon it answers."""

from __future__ import annotations

import json
import os
import socket
from datetime import timedelta

import psutil
import pytest

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.group_store import (
    StoreFile,
    join_store,
    join_store_at,
    open_store,
    open_store_at,
)
from jupyter_ddl.ranks.listeners import closed_to_strangers

dist = pytest.importorskip("torch.distributed", reason="the stores are torch's")

_NOBODY = 65534


def _listening() -> set[tuple[str, int]]:
    found = psutil.Process().net_connections(kind="inet")
    return {(each.laddr.ip, each.laddr.port) for each in found if each.status == "LISTEN"}


def test_ranks_of_one_host_share_a_file_and_no_port() -> None:
    before = _listening()
    place = RankPlace("g", world_size=2, timeout_s=5.0)
    first = StoreFile()
    opened, port = open_store("127.0.0.1", place, first)
    joined = join_store("", place, StoreFile(first.shared_path))
    opened.set("word", "heard")
    assert (joined.get("word"), port) == (b"heard", 0)
    assert _listening() == before


def test_ranks_on_gpus_have_torchs_own_store_of_the_same_file() -> None:
    first = StoreFile()
    opened, _ = open_store("127.0.0.1", RankPlace("g", world_size=2, gpus=("GPU-0",)), first)
    joined = join_store("", RankPlace("g", world_size=2), StoreFile(first.shared_path))
    assert isinstance(opened, dist.FileStore)
    assert not isinstance(joined, dist.FileStore)
    opened.set("word", "heard")
    assert joined.get("word") == b"heard"


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_can_not_open_the_file() -> None:
    file = StoreFile()
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        try:
            StoreFile(file.shared_path)
            os.write(sender, json.dumps("opened").encode())
        except LaunchError as error:
            os.write(sender, json.dumps(error.message).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert "Permission denied" in json.loads(os.read(receiver, 4096))


def test_a_file_that_is_not_there_is_told_with_what_to_do() -> None:
    with pytest.raises(LaunchError, match="same address must run in one container"):
        StoreFile("/proc/1/fd/9999")


def _across_hosts(rank: int, token: str = "t") -> RankPlace:
    return RankPlace("g", rank=rank, world_size=2, n_hosts=2, timeout_s=5.0, token=token)


def test_across_hosts_the_store_listens_at_the_ranks_address_alone() -> None:
    before = _listening()
    opened, port = open_store("127.0.0.1", _across_hosts(0), None)
    assert _listening() - before == {("127.0.0.1", port)}
    joined = join_store(f"127.0.0.1:{port}", _across_hosts(1), None)
    opened.set("word", "heard")
    assert joined.get("word") == b"heard"


def test_a_port_that_a_script_names_is_opened_there_alone_and_asks_for_the_token() -> None:
    patience = timedelta(seconds=5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
    with closed_to_strangers():  # as where ranks meet
        opened = open_store_at(address, "t", patience)
    port = int(address.rpartition(":")[2])
    assert [at for at in _listening() if at[1] == port] in ([("127.0.0.1", port)], [("::1", port)])
    opened.set("word", "heard")
    assert join_store_at(address, "t", patience).get("word") == b"heard"
    with pytest.raises(LaunchError, match="did not show its token"):
        join_store_at(address, "another", patience)


def test_a_port_that_can_not_be_had_is_refused_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(LaunchError, match=f"{address}: Address already in use; name another"):
            open_store_at(address, "t", timedelta(seconds=1))
    for address in (":", "localhost:", "localhost:port"):
        with pytest.raises(LaunchError, match=f"'{address}': expected HOST:PORT; set MASTER_ADDR"):
            join_store_at(address, "t", timedelta(seconds=1))
