"""The options of ``%cluster start kube``, and what they make of a cluster's spec."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import ImageError, OptionError
from jupyter_ddl.grammar import Argument, Group, argument, count, duration_s
from jupyter_ddl.protocol.cluster import KubeSpec

__all__ = ["KUBE", "ON_KUBERNETES", "START_TIMEOUT_S", "kube_spec", "with_image"]

KUBE = "kube"
START_TIMEOUT_S = 900.0
"""Pulling an image of several GB may take as long; what hinders a start is told much earlier."""
_PAIR = re.compile(r"[^=\s]+=.*")
_DEFAULT = KubeSpec()


def _many(option: str, metavar: str, help: str, kind: Callable[[str], Any] = str) -> Argument:  # noqa: A002
    return argument(
        option, type=kind, action="append", default=[], metavar=metavar, help=f"{help}; repeatable"
    )


def _pair(text: str) -> tuple[str, str]:
    if not _PAIR.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE")
    name, _, value = text.partition("=")
    return name, value


ON_KUBERNETES = Group(
    (
        argument(
            "--registry",
            metavar="HOST/PATH",
            help="where an image of --env DIRECTORY is pushed to",
        ),
        argument(
            "--namespace", metavar="NS", help="default: the one of the kubeconfig, or of this pod"
        ),
        argument("--slots", type=count(1), metavar="S", help="ranks side by side in each pod"),
        argument("--gpus", type=count(0), metavar="G", help="nvidia.com/gpu of each worker"),
        _many("--node-selector", "KEY=VALUE", "nodes on which workers may run", _pair),
        _many("--toleration", "KEY[=VALUE][:EFFECT]", "a taint that pods tolerate"),
        _many("--set-env", "NAME=VALUE", "a variable of the workers' environment", _pair),
        _many("--volume", "KIND:NAME:/PATH", "a pvc, configmap or secret to mount"),
        argument("--priority", metavar="CLASS", help="name of a PriorityClass"),
        argument(
            "--pod-template", metavar="FILE", help="a pod in Kubernetes' form, laid over ours"
        ),
        argument("--lease", type=duration_s, metavar="5m", help="pods end so long after a crash"),
    ),
    title="on Kubernetes",
)
"""What only pods have."""


def kube_spec(options: argparse.Namespace) -> KubeSpec:
    """The spec that the options ask for.

    Raises
    ------
    OptionError
        An option of Kubernetes was given for another backend.
    ClusterError
        The pod template can't be read.
    """
    given = _given(options)
    if given and options.backend != KUBE:
        raise OptionError(
            f"{given[0]} is for clusters on Kubernetes; `%cluster start kube {given[0]} …`"
        )
    template = None
    if options.pod_template is not None:
        from jupyter_ddl.backends.kubernetes.template import read_template

        template = read_template(options.pod_template)
    return KubeSpec(
        image=getattr(options, "env", None),
        registry=options.registry,
        namespace=options.namespace,
        slots=options.slots or 1,
        gpus=options.gpus or 0,
        node_selector=dict(options.node_selector),
        tolerations=tuple(options.toleration),
        priority=options.priority,
        env=dict(options.set_env),
        volumes=tuple(options.volume),
        pod_template=None if template is None else template.spec,
        pod_labels={} if template is None else template.labels,
        pod_annotations={} if template is None else template.annotations,
        lease_s=options.lease or _DEFAULT.lease_s,
    )


def with_image(spec: KubeSpec, on_phase: Callable[[str], None] | None = None) -> KubeSpec:
    """The spec with the image that its pods are to run.

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

    choice = choose_env(spec.image or "auto", os.environ, Path.cwd())
    image = choice.image
    if choice.configuration is None and spec.registry:
        raise ImageError(
            f"--registry {spec.registry} is where an image that is built is pushed to, and "
            f"--env {spec.image or 'auto'} builds none; leave it out, or pass --env DIRECTORY"
        )
    if choice.configuration is not None:
        plan = plan_build(choice.configuration, spec.registry or "")
        if on_phase is None:
            find_engine()
            image = plan.image
        else:
            image = build_image(plan, on_phase)
    return msgspec.structs.replace(spec, image=str(image))


def _given(options: argparse.Namespace) -> list[str]:
    names = (
        "registry",
        "namespace",
        "slots",
        "gpus",
        "node_selector",
        "toleration",
        "set_env",
        "volume",
        "priority",
        "pod_template",
        "lease",
    )
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
