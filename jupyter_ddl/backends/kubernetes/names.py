"""Names and labels of everything that belongs to a cluster."""

from __future__ import annotations

import getpass
import os
import re
import secrets
from zlib import crc32

from jupyter_ddl.errors import ClusterError
from jupyter_ddl.store.paths import home_id

__all__ = [
    "CLUSTER_LABEL",
    "DASK_LABEL",
    "ENDING_ANNOTATION",
    "IMAGE_ANNOTATION",
    "MANAGED",
    "SERVICE_ACCOUNT",
    "SIZE_ANNOTATION",
    "USER_LABEL",
    "check_dns_label",
    "claim_name",
    "labels_of",
    "object_name",
    "selector_of",
    "user_name",
]

MANAGED = {"app.kubernetes.io/managed-by": "jupyter-ddl"}
CLUSTER_LABEL = "jupyter-ddl/cluster"
DASK_LABEL = "dask.org/cluster-name"
"""The operator's own, on whatever it makes for a DaskCluster."""
USER_LABEL = "jupyter-ddl/user"
SIZE_ANNOTATION = "jupyter-ddl/workers"
"""Workers that were asked for since: the operator reads them of the cluster's worker group."""
SERVICE_ACCOUNT = "jupyter-ddl-controller"
"""Of a namespace whose administrator has made one for all controllers."""
IMAGE_ANNOTATION = "jupyter-ddl/image"
"""What the image's reference meant when the cluster started, with its digest."""
ENDING_ANNOTATION = "jupyter-ddl/ending"
"""Seconds since the deletion: a change, so that the operator looks at the cluster again."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NOT_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL_CHARS = 63
_CLAIM_CHARS = 40
_NAME_CHARS = 28
"""The operator appends ``-default-worker-0123456789``, and Kubernetes two hashes to that."""


def user_name() -> str:
    """Whose clusters these are, as a label's value.

    ``JUPYTER_DDL_USER``, or JupyterHub's user; else the system's, and which home is theirs: images
    of notebooks have the same user for everybody.
    """
    given = os.environ.get("JUPYTER_DDL_USER") or os.environ.get("JUPYTERHUB_USER")
    if given:
        return _label_value(given, _LABEL_CHARS)
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as containers have
        name = f"uid-{os.getuid()}"
    home = home_id()
    return f"{_label_value(name, _LABEL_CHARS - len(home) - 1)}-{home}"


def _label_value(text: str, length: int) -> str:
    """A text as it is, as far as a label's value can have it; two texts never have one value."""
    value = _NOT_LABEL.sub("-", text)[:length].strip("-_.")
    if value == text:
        return value
    return f"{value[: length - 9]}-{crc32(text.encode()):08x}".lstrip("-_.")


def object_name(cluster: str) -> str:
    """A new name of the DaskCluster of ``cluster``: two users may both call theirs ``kube``."""
    return f"{cluster[:_NAME_CHARS].strip('-')}-{secrets.token_hex(3)}"


def claim_name(user: str) -> str:
    """Of the claim that keeps a user's runs."""
    slug = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    if slug != user or len(slug) > _CLAIM_CHARS:  # two users never have one claim
        slug = f"{slug[:_CLAIM_CHARS]}-{crc32(user.encode()):08x}".lstrip("-")
    return f"jupyter-ddl-{slug}"


def labels_of(cluster: str, user: str) -> dict[str, str]:
    return {**MANAGED, CLUSTER_LABEL: cluster, USER_LABEL: user}


def selector_of(user: str, cluster: str | None = None) -> str:
    """Label selector of a user's clusters, or of those of one name."""
    wanted = {**MANAGED, USER_LABEL: user}
    if cluster is not None:
        wanted[CLUSTER_LABEL] = cluster
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def check_dns_label(what: str, value: str) -> None:
    """Refuse what Kubernetes would not take as a name.

    Raises
    ------
    ClusterError
        It is none; the message says what one is.
    """
    if not _LABEL.fullmatch(value):
        raise ClusterError(
            f"{what} {value!r} is not a DNS label; expected up to 63 of a-z, 0-9 and -, beginning "
            "and ending with a letter or digit"
        )
