"""Kubernetes' own part of a cluster's spec, and the options that it is made of."""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.backends.base import OnPhase, settings_of
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.errors import ImageError
from jupyter_ddl.grammar import Argument, Group, argument, count, duration_s
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.settings.secret_names import sounds_secret

__all__ = [
    "ARGUMENTS",
    "HOME_VARIABLE",
    "KubeSettings",
    "kube_settings",
    "told_in_clear",
    "with_image",
]

HOME_VARIABLE = "JUPYTER_DDL_KUBE_HOME"
"""The site's ``--home``."""

_PAIR = re.compile(r"[^=\s]+=.*")


class KubeSettings(msgspec.Struct, frozen=True):
    """What only a cluster on Kubernetes has."""

    image: str | None = None
    """Of scheduler and workers.  The client chooses it: a backend does not guess."""
    registry: str | None = None
    """Where an image that is built of a directory is pushed to."""
    namespace: str | None = None
    """None: the one of the kubeconfig's context, or the notebook's own pod's."""
    slots: int = 1
    """Of each pod: so many ranks side by side, which share what the pod holds."""
    gpus: int = 0
    """``nvidia.com/gpu`` of each worker."""
    node_selector: dict[str, str] = {}
    tolerations: tuple[str, ...] = ()
    """As ``kubectl taint`` writes them: ``key=value:Effect``, ``key:Effect``, ``key``."""
    spot: SpotPool | None = None
    """Where workers, and never the scheduler, run on machines that may be taken away."""
    priority: str | None = None
    """Name of a PriorityClass."""
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    """Variables of workers that Kubernetes takes from a Secret: ``SECRET:KEY``."""
    volumes: tuple[str, ...] = ()
    """``pvc:CLAIM:/path``, ``configmap:NAME:/path`` or ``secret:NAME:/path``."""
    pod_template: str | None = None
    """A pod's spec in Kubernetes' own form, as JSON; it has the last word."""
    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}
    lease_s: float = 300.0
    """The pods end by themselves when the controller was silent for so long."""
    home: str | None = None
    """Where runs lie: ``pvc:CLAIM[:FOLDER]``, or ``pvc``, which is a claim of the user's own.

    None: in the controller's pod.
    """
    home_size: str | None = None
    """Of the user's own claim, when it is made."""
    service_account: str | None = None
    """Of the controller.  None: the namespace's usual one, else one of this cluster alone."""


def kube_settings(spec: ClusterSpec) -> KubeSettings:
    """Kubernetes' part of a cluster's spec."""
    return settings_of(spec, KubeSettings)


def told_in_clear(kube: KubeSettings) -> str:
    """One line about variables that sound like secrets and stand in objects and on disk in clear.

    Those of ``--set-env`` and of the pod template; empty where there are none.
    """
    template: dict[str, Any] = json.loads(kube.pod_template or "{}")
    variables = [
        variable["name"]
        for container in template.get("containers") or ()
        for variable in container.get("env") or ()
        if "value" in variable
    ]
    names = [name for name in (*kube.env, *variables) if sounds_secret(name)]
    if not names:
        return ""
    return (
        f"{', '.join(names)} of the pods will stand in clear in the cluster's objects and on disk, "
        f"and {'sounds' if len(names) == 1 else 'sound'} like a secret; keep the value in a Secret "
        f"of the namespace, and pass --secret-env {names[0]}=SECRET:KEY"
    )


def _pair(text: str) -> tuple[str, str]:
    if not _PAIR.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE")
    name, _, value = text.partition("=")
    return name, value


def _many(flag: str, dest: str, metavar: str, what: str, **settings: Any) -> Argument:
    return argument(
        flag,
        dest=dest,
        action="append",
        default=[],
        metavar=metavar,
        help=f"{what}; repeatable",
        **settings,
    )


ARGUMENTS = (
    Group(
        (
            argument(
                "--env",
                dest="image",
                metavar="auto|IMAGE|DIR",
                help="image of the pods, or a directory to build it from",
            ),
            argument(
                "--registry",
                metavar="HOST/PATH",
                help="where to push an image that is built",
            ),
            argument(
                "--namespace",
                metavar="NS",
                help="default: that of the kubeconfig, or of this pod",
            ),
            argument("--slots", type=count(1), metavar="S", help="ranks side by side in each pod"),
            argument("--gpus", type=count(0), metavar="G", help="nvidia.com/gpu of each worker"),
            _many(
                "--node-selector",
                "node_selector",
                "KEY=VALUE",
                "label of the nodes on which workers may run",
                type=_pair,
            ),
            _many(
                "--toleration", "tolerations", "KEY[=VALUE][:EFFECT]", "a taint that pods tolerate"
            ),
            argument(
                "--spot",
                action="store_true",
                help="workers on machines of the site's spot pool (JUPYTER_DDL_SPOT)",
            ),
            _many(
                "--set-env",
                "env",
                "NAME=VALUE",
                "a variable of the workers' environment",
                type=_pair,
            ),
            _many(
                "--secret-env",
                "secret_env",
                "NAME=SECRET:KEY",
                "a variable whose value is in a Secret of the namespace",
                type=_pair,
            ),
            _many("--volume", "volumes", "KIND:NAME:/PATH", "a pvc, configmap or secret to mount"),
            argument("--priority", metavar="CLASS", help="name of a PriorityClass"),
            argument(
                "--pod-template", metavar="FILE", help="a Pod in YAML or JSON, merged into ours"
            ),
            argument(
                "--lease",
                dest="lease_s",
                type=duration_s,
                metavar="5m",
                help="how long pods outlive a controller that crashed",
            ),
            argument(
                "--home",
                metavar="pvc[:CLAIM[:FOLDER]]",
                help="keep runs on a claim; pvc: on one of your own, which is made if it is not "
                "there; default: in the pod, and copied here",
            ),
            argument("--home-size", metavar="20Gi", help="of a claim that --home pvc makes"),
            argument(
                "--service-account",
                metavar="NAME",
                help="of the controller; default: jupyter-ddl-controller if it is there",
            ),
        ),
        title="on Kubernetes",
    ),
)


def with_image(settings: KubeSettings, on_phase: OnPhase | None = None) -> KubeSettings:
    """The settings with the image that the pods are to run.

    The one named, the notebook's own, or one that is built of a directory and pushed.

    Parameters
    ----------
    on_phase : callable, optional
        Gets the steps of a build; None: nothing is built, only whether it could be is found out.

    Raises
    ------
    ImageError
        None is known, what was named is none, or it cannot be built.
    EnvironmentFileError
        A file of the directory cannot be read as what it is.
    """
    from jupyter_ddl.environment.image import build_image, find_engine, plan_build
    from jupyter_ddl.environment.image_choice import choose_env

    choice = choose_env(settings.image or "auto", os.environ, Path.cwd())
    image = choice.image
    if choice.configuration is None and settings.registry:
        raise ImageError(
            f"--registry {settings.registry} is where an image that is built is pushed to, and "
            f"--env {settings.image or 'auto'} builds none; leave it out, or pass --env DIRECTORY"
        )
    if choice.configuration is not None:
        plan = plan_build(choice.configuration, settings.registry or "")
        if on_phase is None:
            find_engine()
            image = plan.image
        else:
            image = build_image(plan, on_phase)
    # What is built and pushed is an image like any other.
    return msgspec.structs.replace(settings, image=str(image), registry=None)
