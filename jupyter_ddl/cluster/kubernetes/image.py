"""Which image the pods run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from jupyter_ddl.errors import ClusterError

__all__ = ["chosen_image"]

_VARIABLES = ("JUPYTER_DDL_IMAGE", "JUPYTER_IMAGE_SPEC", "JUPYTER_IMAGE")
"""JupyterHub's and BinderHub's habit; the first is our own, for whoever keeps a hub."""
_REFERENCE = re.compile(
    r"[a-z0-9]+([._-][a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def chosen_image(wanted: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The image asked for, or the one that this notebook runs in.

    Raises
    ------
    ClusterError
        There is none, or what was given is no reference.
    """
    if wanted in (None, "", "auto"):
        found = next((environ[name] for name in _VARIABLES if environ.get(name)), None)
        if found is None:
            raise ClusterError(
                "which image the pods are to run is not known (JUPYTER_IMAGE_SPEC is not set, as "
                "it is on JupyterHub and Binder); name one with --env IMAGE"
            )
        wanted = found
    if not _REFERENCE.fullmatch(str(wanted)):
        raise ClusterError(
            f"image {wanted!r} is not a reference; one like registry.org/team/image:tag is expected"
        )
    return str(wanted)
