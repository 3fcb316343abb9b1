"""Plug-ins by name: verbs, samplers, pruners, strategies and backends, ours or of another package.

A package adds one by an entry point: its group is the kind's (``jupyter_ddl.pruners``), its name is
what users type, its target is a class derived from the kind's base, which states what is expected
of it.  Whoever asks for names imports no plug-in; a built-in name costs no look at what is
installed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_ddl.errors import OptionError, PluginError
from jupyter_ddl.nearest import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["BACKENDS", "FORMS", "PRUNERS", "SAMPLERS", "STRATEGIES", "VERBS", "PluginKind"]


class PluginKind:
    """The plug-ins of one kind.

    Parameters
    ----------
    noun : str
        What one is called in messages.
    group : str
        The entry-point group under which packages offer more.
    base : str
        The class that states the obligations, as ``module:Class``.
    built_in : mapping
        Our own, by name, as ``module:Class``.  No package can take their names.
    """

    def __init__(self, noun: str, group: str, base: str, built_in: Mapping[str, str]) -> None:
        self.noun = noun
        self.group = group
        self.built_in = dict(built_in)
        self._base = base

    def names(self) -> tuple[str, ...]:
        """All names: our own, then those of installed packages in the order of the alphabet."""
        return tuple(dict.fromkeys((*self.built_in, *sorted(self._offered()))))

    def check(self, name: str, *, also: Iterable[str] = (), near: Iterable[str] = ()) -> str:
        """The name itself, if there is a plug-in of this name.

        Parameters
        ----------
        also : iterable of str
            What else the option takes, for the message.
        near : iterable of str
            Further names that may be meant.

        Raises
        ------
        OptionError
            There is none; gives all names, and the nearest one.
        """
        if name in self.built_in:
            return name
        known = self.names()
        if name in known:
            return name
        listed = ", ".join((*known, *also))
        hint = did_you_mean(name, (*known, *near))
        article = "an" if self.noun[0] in "aeiou" else "a"
        raise OptionError(f"{name!r} is not {article} {self.noun}; known: {listed}{hint}")

    def argument(self, text: str) -> str:
        """Check the value of an option: a type for :mod:`argparse`."""
        try:
            return self.check(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    def target(self, name: str) -> str:
        """The class behind a name, as ``module:Class``; nothing is imported.

        Raises
        ------
        OptionError
            There is no such plug-in.
        PluginError
            Two packages offer one of this name.
        """
        if name in self.built_in:
            return self.built_in[name]
        self.check(name)
        points = self._offered()[name]
        targets = {point.value for point in points}
        if len(targets) > 1:
            owners = ", ".join(sorted(_owner(point) for point in points))
            raise PluginError(
                f"{self.noun} {name!r} is offered by several packages: {owners}; uninstall all but "
                f"one of them"
            )
        return points[0].value

    def load(self, name: str) -> type[Any]:
        """Import a plug-in's class.

        Raises
        ------
        OptionError
            There is no such plug-in.
        PluginError
            It can't be imported here, or is not what the base class asks for.
        """
        target = self.target(name)
        what = f"{self.noun} {name!r} ({target})"
        try:
            found = _import(target)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"{what} can't be loaded here: {error}; install the same version of its package "
                f"beside the notebook and on every worker"
            ) from error
        if not (isinstance(found, type) and issubclass(found, _import(self._base))):
            raise PluginError(
                f"{what} is not a class derived from {self._base.replace(':', '.')}, which says "
                f"what is expected of one"
            )
        if inspect.isabstract(found):
            missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
            raise PluginError(f"{what} does not define {missing}")
        return found

    def _offered(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        # Here, because each process of a cluster knows plug-ins, and few look for others'.
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group):
            found.setdefault(point.name, []).append(point)
        return found


def _import(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _owner(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} ({point.value})"


SAMPLERS = PluginKind(
    "sampler",
    "jupyter_ddl.samplers",
    "jupyter_ddl.studies.samplers:LocalSampler",
    {
        "grid": "jupyter_ddl.studies.samplers:GridSampler",
        "random": "jupyter_ddl.studies.samplers:RandomSampler",
        **dict.fromkeys(
            ("tpe", "cmaes", "gp", "qmc"), "jupyter_ddl.studies.samplers_optuna:OptunaSampler"
        ),
        "de": "jupyter_ddl.studies.evolution:EvolutionSampler",
    },
)
"""Those of packages are :class:`jupyter_ddl.Sampler` or Optuna's, and run in a rank process."""

PRUNERS = PluginKind(
    "pruner",
    "jupyter_ddl.pruners",
    "jupyter_ddl.studies.pruners:Pruner",
    {
        "none": "jupyter_ddl.studies.pruners:NoPruner",
        "median": "jupyter_ddl.studies.pruners:MedianPruner",
        "asha": "jupyter_ddl.studies.pruners:AshaPruner",
        "hyperband": "jupyter_ddl.studies.pruners:HyperbandPruner",
    },
)

STRATEGIES = PluginKind(
    "strategy",
    "jupyter_ddl.strategies",
    "jupyter_ddl.ranks.strategies.base:Strategy",
    {
        "ddp": "jupyter_ddl.ranks.strategies.ddp.strategy:DataParallel",
        "fsdp": "jupyter_ddl.ranks.strategies.fsdp.strategy:FullySharded",
        "dp": "jupyter_ddl.ranks.strategies.dp:OneProcess",
        "local-sgd": "jupyter_ddl.ranks.strategies.local_sgd.strategy:LocalSgd",
        "diloco": "jupyter_ddl.ranks.strategies.local_sgd.strategy:DiLoCo",
        "ps-sync": "jupyter_ddl.ranks.strategies.parameter_server.strategy:SynchronousServers",
        "ps-async": "jupyter_ddl.ranks.strategies.parameter_server.strategy:AsynchronousServers",
        "pipeline": "jupyter_ddl.ranks.strategies.pipeline.strategy:Pipeline",
    },
)

VERBS = PluginKind(
    "verb",
    "jupyter_ddl.verbs",
    "jupyter_ddl.verbs.base:Verb",
    {
        "search": "jupyter_ddl.verbs.search:Search",
        "map": "jupyter_ddl.verbs.map:Map",
        "ddp": "jupyter_ddl.verbs.ddp:Ddp",
        "fit": "jupyter_ddl.verbs.fit:Fit",
        "run": "jupyter_ddl.verbs.run:CellGroup",
    },
)
"""Tagged with their names: a run's verb is found by its tag."""


BACKENDS = PluginKind(
    "backend",
    "jupyter_ddl.backends",
    "jupyter_ddl.backends.base:BackendPlugin",
    {
        "local": "jupyter_ddl.backends.local_plugin:LocalPlugin",
        "kube": "jupyter_ddl.backends.kubernetes.plugin:KubePlugin",
        "gateway": "jupyter_ddl.backends.gateway_plugin:GatewayPlugin",
        "dask": "jupyter_ddl.backends.address_plugin:AddressPlugin",
    },
)


FORMS = PluginKind(
    "form of a program",
    "jupyter_ddl.forms",
    "jupyter_ddl.standalone.forms:ProgramForm",
    {
        "script": "jupyter_ddl.standalone.forms:ProgramFile",
        "job": "jupyter_ddl.backends.kubernetes.jobs:BatchJob",
        "trainjob": "jupyter_ddl.backends.kubernetes.trainjobs:TrainJob",
        "katib": "jupyter_ddl.backends.kubernetes.experiments:Experiment",
    },
)
"""What ``%runs export RUN FILE --as`` takes."""
