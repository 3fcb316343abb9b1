"""Backends are found by name, with options of their own; one line says what is missing."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from jupyter_ddl.backends.base import backend_plugin, make_backend
from jupyter_ddl.backends.local import LocalBackend
from jupyter_ddl.client.clusters import cluster_spec
from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.errors import ClusterError, OptionError
from jupyter_ddl.grammar import HelpRequested
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol.cluster import ClusterSpec


def test_a_spec_names_its_backend() -> None:
    assert isinstance(make_backend(ClusterSpec()), LocalBackend)
    with pytest.raises(OptionError, match=r"'locl' is not a backend; .*; did you mean 'local'\?"):
        make_backend(ClusterSpec(backend="locl"))
    with pytest.raises(
        OptionError, match="'xyz' is not a backend; known: local, kube, gateway, da"
    ):
        make_backend(ClusterSpec(backend="xyz"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jupyter_ddl.backends.gateway", raising=False)
    monkeypatch.setitem(sys.modules, "dask_gateway", None)
    with pytest.raises(
        ClusterError, match=r"'gateway' needs the package (dask_gateway|aiohttp)"
    ) as it:
        make_backend(ClusterSpec(backend="gateway"))
    assert "`pip install 'jupyter_ddl[gateway]'`" in it.value.message


def test_an_address_is_what_connect_takes() -> None:
    with pytest.raises(ClusterError, match="`%cluster connect ADDRESS`"):
        backend_plugin("dask").prepare(ClusterSpec(backend="dask"), print)
    with pytest.raises(OptionError, match="'dask' starts nothing; `%cluster connect` uses what"):
        CLUSTER.parse(["start", "dask", "tcp://host:1"])


def test_the_options_of_a_start_are_those_of_its_backend() -> None:
    _, values = CLUSTER.parse(["start", "-n", "2", "kube", "--slots", "4", "--set-env", "A=b"])
    assert (values["backend"], values["slots"], values["env"]) == ("kube", 4, [("A", "b")])
    _, values = CLUSTER.parse(["start", "--namespace", "mine", "kube", "-n", "2"])
    assert (values["backend"], values["namespace"]) == ("kube", "mine")
    _, values = CLUSTER.parse(["start", "-n", "2"])
    assert values["backend"] == "local"
    assert "slots" not in values


@pytest.mark.parametrize("command", ["start", "doctor"])
def test_an_option_of_another_backend_is_told_with_its_name(command: str) -> None:
    has_it = f"backend kube has it: `%cluster {command} kube --slots …`"
    for words in (["local", "--slots", "2"], ["--slots", "2"]):
        with pytest.raises(OptionError, match=f"unknown option '--slots'; {has_it}"):
            CLUSTER.parse([command, *words])


def test_help_and_tab_know_the_options_of_the_backend_that_was_named() -> None:
    with pytest.raises(HelpRequested) as of_kube:
        CLUSTER.parse(["start", "kube", "--help"])
    with pytest.raises(HelpRequested) as of_local:
        CLUSTER.parse(["start", "--help"])
    assert "--pod-template" in of_kube.value.text
    assert "--pod-template" not in of_local.value.text
    assert "--pod-template" in CLUSTER.offers(["start", "kube"], {})
    assert "--pod-template" not in CLUSTER.offers(["start", "loc"], {})
    assert "kube" in CLUSTER.offers(["start"], {})


def test_an_option_that_a_backend_has_not_is_refused_from_python_too() -> None:
    with pytest.raises(OptionError, match=r"'kube' has no option 'namespce'.*mean 'namespace'"):
        cluster_spec("kube", namespce="x")
    with pytest.raises(OptionError, match=r"backend 'local' has no option 'image'; it has none"):
        cluster_spec("local", image="x")
    with pytest.raises(OptionError, match=r"backend 'kube': Expected `int`, got `str` - at `\$.sl"):
        cluster_spec("kube", slots="4")


@pytest.mark.parametrize("name", [name for name in BACKENDS.built_in if name != "dask"])
def test_settings_are_the_same_after_the_way_to_the_controller(name: str) -> None:
    spec = cluster_spec(name)
    sent = msgspec.json.decode(msgspec.json.encode(spec), type=ClusterSpec)
    plugin = backend_plugin(name)
    assert msgspec.convert(sent.settings, plugin.settings_type) == plugin.settings()


def test_knowing_the_backends_imports_none_of_what_they_need() -> None:
    code = (
        "import sys; from jupyter_ddl.plugins import BACKENDS; "
        "[BACKENDS.load(name)() for name in BACKENDS.names()]; "
        "print(sorted({'distributed', 'kr8s', 'dask_gateway', 'dask'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert out.strip() == "[]"
