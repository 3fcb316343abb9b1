"""The claim that a cluster's runs lie on: one that is named, or one that is made for the user."""

from __future__ import annotations

import logging
import re
from typing import Any

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.names import MANAGED, USER_LABEL, claim_name
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.errors import BackendError, ClusterError

__all__ = ["check_home", "claim_of", "forget_claim", "make_claim"]

log = logging.getLogger(__name__)

_CLAIMS = "persistentvolumeclaims"
_OWN = "pvc"
_CLAIM = re.compile(r"pvc:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[^:]+)?")
_SIZE = re.compile(r"[1-9][0-9]*[MGT]i")
_DEFAULT_SIZE = "10Gi"

Json = dict[str, Any]


def check_home(kube: KubeSettings) -> None:
    """Refuse a place for runs that can't be one.

    Raises
    ------
    ClusterError
        Names the option, the value, and what was expected.
    """
    home, size = kube.home, kube.home_size
    if size is not None and home != _OWN:
        raise ClusterError(
            f"--home-size {size} is of a claim that `--home pvc` makes, and --home is "
            f"{home or 'not given'}; leave it out, or pass --home pvc"
        )
    if size is not None and not _SIZE.fullmatch(size):
        raise ClusterError(f"--home-size {size!r}: expected a number with Mi, Gi or Ti, as 20Gi")
    if home is None or home == _OWN:
        return
    if not _CLAIM.fullmatch(home) or ".." in re.split("[:/]", home):
        raise ClusterError(
            f"--home {home!r}: expected pvc:CLAIM, pvc:CLAIM:FOLDER with a folder of the claim, or "
            f"pvc for a claim of your own"
        )


def claim_of(kube: KubeSettings, user: str) -> tuple[str, str]:
    """The claim that a user's runs lie on, and the folder there; empty: in the pod."""
    if kube.home == _OWN:
        return claim_name(user), ""
    claim, _, path = (kube.home or "").removeprefix("pvc:").partition(":")
    return claim, path.strip("/")


async def make_claim(api: KubeApi, kube: KubeSettings, user: str) -> Json | None:
    """Have the user's own claim made if it is wanted and not there; None where nothing was made.

    It belongs to no cluster: it stays, with all runs, when this one ends.

    Raises
    ------
    BackendError
        It may not be made, or was refused, as by a quota.
    """
    if kube.home != _OWN:
        return None
    name, size = claim_name(user), kube.home_size or _DEFAULT_SIZE
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {**MANAGED, USER_LABEL: user}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    }
    try:
        made = await api.create(_CLAIMS, claim)
    except BackendError as error:
        if error.status == 409:
            return None
        raise BackendError(
            f"--home pvc could not have claim {name} ({size}) made: {error.message}; name one that "
            f"is there with --home pvc:CLAIM, or leave --home out",
            status=error.status,
        ) from None
    log.info("claim %s was made, of %s", name, size)
    return made


async def forget_claim(api: KubeApi, made: Json) -> None:
    """Delete a claim of a start that was refused, unless it has got a volume since.

    Then another cluster of this user may have begun to use it: it stays, and the next start has it.
    """
    metadata = made["metadata"]
    try:
        await api.delete(_CLAIMS, metadata["name"], version=metadata["resourceVersion"])
    except BackendError as error:
        log.warning("claim %s was made, and stays: %s", metadata["name"], error.message)
