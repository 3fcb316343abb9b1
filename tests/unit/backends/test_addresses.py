"""What ``%cluster connect`` takes for an address, and what Dask's configuration must say."""

from __future__ import annotations

from pathlib import Path

import dask.config
import msgspec
import pytest

from jupyter_ddl.backends.address_settings import AddressSettings, scheduler_settings
from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.client.clusters import cluster_spec
from jupyter_ddl.errors import OptionError

_KEYS = (
    "distributed.comm.tls.ca-file",
    "distributed.comm.tls.client.cert",
    "distributed.comm.tls.client.key",
)


@pytest.mark.parametrize(
    "address", ["", "host", "tcp://host", "ucx://h:1", "h:0", "h:70000", "a b:1"]
)
def test_what_is_no_address_is_shown_as_it_was_given(address: str) -> None:
    with pytest.raises(OptionError, match="is not the address of a scheduler") as refusal:
        scheduler_settings(address)
    assert repr(address) in refusal.value.message


def test_plain_tcp_must_be_asked_for_and_may_be_forbidden() -> None:
    assert scheduler_settings("tcp://[::1]:8786").address == "tcp://[::1]:8786"
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(OptionError, match="connect to tls://host:1"),
    ):
        scheduler_settings("tcp://host:1")


def test_files_come_from_the_configuration_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dask.config.set(dict.fromkeys(_KEYS)), pytest.raises(OptionError, match=_KEYS[0]):
        scheduler_settings("host:8786")
    monkeypatch.chdir(tmp_path)
    with dask.config.set(dict.fromkeys(_KEYS, "all.pem")):
        with pytest.raises(OptionError, match=r"'all\.pem': no such file"):
            scheduler_settings("host:8786")
        Path("all.pem").touch()
        found = scheduler_settings("host:8786")
    assert (found.address, found.ca_file) == ("tls://host:8786", str(tmp_path / "all.pem"))


def test_the_backend_takes_an_address_and_no_other_backends_options() -> None:
    plugin = backend_plugin("dask")
    assert plugin.settings(address="tcp://[::1]:8786") == scheduler_settings("tcp://[::1]:8786")
    with pytest.raises(OptionError, match="backend 'dask' has no option 'namespace'"):
        plugin.settings(address="tcp://[::1]:8786", namespace="team")


def test_an_address_becomes_the_settings_of_a_cluster() -> None:
    spec = cluster_spec("dask", address="tcp://host:8786", lost_after_s=3.0)
    assert (spec.backend, spec.start_timeout_s) == ("dask", 8.0)
    expected = AddressSettings("tcp://host:8786", lost_after_s=3.0)
    assert msgspec.convert(spec.settings, AddressSettings) == expected
    with pytest.raises(OptionError, match="'' is not the address of a scheduler"):
        cluster_spec("dask")
