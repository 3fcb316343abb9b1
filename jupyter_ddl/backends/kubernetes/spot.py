"""Pods on machines that may be taken away: the site's pool of them, and how nodes announce it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import OptionError
from jupyter_ddl.store.site_table import SiteTable

__all__ = ["SPOT_VARIABLE", "SpotPool", "known_pool", "notice_of", "read_pool"]

SPOT_VARIABLE = "JUPYTER_DDL_SPOT"

_NOTICES = (
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
"""Taints by which the cluster's autoscaler, Karpenter and the clouds' handlers of notices announce
that a node goes.  Those that only say that one *may* go (``DeletionCandidateOf…``,
``rebalance-recommendation``) are none.

https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
https://github.com/aws/aws-node-termination-handler
https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms
https://karpenter.sh/docs/concepts/disruption/
"""


class SpotPool(msgspec.Struct, frozen=True):
    """What brings workers to a site's spot machines, and how those announce their end."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[str, ...] = ()
    """As ``kubectl taint`` writes them: ``key=value:Effect``, ``key:Effect``, ``key``."""
    notices: tuple[str, ...] = ()
    """Keys of taints that announce the end of a node, beside those that are known."""


def known_pool() -> SpotPool:
    """The pool of ``--spot``.

    Raises
    ------
    OptionError
        None is named, or its file is no such pool.
    """
    text = os.environ.get(SPOT_VARIABLE, "").strip()
    if not text:
        raise OptionError(
            f"--spot: no pool of spot machines is known here, {SPOT_VARIABLE} names no file; ask "
            f"whoever runs this Kubernetes, or pass --node-selector and --toleration instead"
        )
    return read_pool(Path(text).expanduser())


def read_pool(path: Path) -> SpotPool:
    """A pool from a site's file.

    Raises
    ------
    OptionError
        One line with the file, the key, its value and what was expected.
    """
    advice = "docs/kubernetes.md has an example"
    table = SiteTable(path, f"the spot pool ({SPOT_VARIABLE})", advice)
    found = table.read()
    table.check_names("", found, SpotPool.__struct_fields__)
    labels = table.mapping("node_selector", found.get("node_selector"), "labels of nodes")
    for name, value in labels.items():
        if not isinstance(value, str):
            table.refuse(f'node_selector."{name}"', value, "text: the value of a label")
    if not labels:
        table.refuse("node_selector", None, "the labels of the pool's nodes")
    lists = {}
    for key in ("tolerations", "notices"):
        value = found.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            table.refuse(key, value, "a list of texts")
        lists[key] = tuple(value)
    return SpotPool(dict(labels), **lists)


def notice_of(node: dict[str, Any], more: Iterable[str] = ()) -> str:
    """The taint by which a node announces its end; empty where there is none.  Pure."""
    known = {*_NOTICES, *more}
    taints = node.get("spec", {}).get("taints") or []
    return next((str(each["key"]) for each in taints if each.get("key") in known), "")
