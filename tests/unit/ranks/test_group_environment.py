"""The variables by which torch, TensorFlow and JAX find the other ranks."""

from __future__ import annotations

import json

import psutil

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.group import GroupPorts, group_environment, interface_environment

_PLACE = RankPlace("g-1", rank=1, world_size=2, local_rank=1, local_world_size=2, restart_count=3)
_LOCAL = ("127.0.0.1:4000", "127.0.0.1:4001")
_PORTS = GroupPorts(master=5001, coordinator=5000)


def test_ranks_see_what_torchrun_sets() -> None:
    found = group_environment(_PLACE, _LOCAL, _PORTS)
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "5001",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    assert expected.items() <= found.items()


def test_other_frameworks_get_a_port_that_torchs_store_does_not_hold() -> None:
    found = group_environment(_PLACE, _LOCAL, _PORTS)
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:4001"]},
        "task": {"type": "worker", "index": 1},
    }
    assert found["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:5000"
    alone = group_environment(_PLACE, _LOCAL, None)
    assert alone["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:4000"
    assert alone["MASTER_PORT"] == "4000"


def test_addresses_of_ipv6_are_bracketed_and_jax_listens_on_no_other() -> None:
    found = group_environment(_PLACE, ("fd00::1:4000", "10.0.0.2:4001"), None)
    assert found["MASTER_ADDR"] == "fd00::1"
    assert found["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:4000"
    assert found["JAX_COORDINATOR_BIND_ADDRESS"] == "[fd00::1]:4000"


def test_collectives_listen_on_the_interface_of_the_ranks_address() -> None:
    (loopback,) = {
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(each.address == "127.0.0.1" for each in addresses)
    }
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert interface_environment("127.0.0.1") == dict.fromkeys(names, loopback)
    assert interface_environment("192.0.2.1") == {}
