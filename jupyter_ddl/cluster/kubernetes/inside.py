"""Whether this process runs in a pod, and in which namespace."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["in_pod", "own_namespace"]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_pod() -> bool:
    """Whether a service account is mounted here."""
    return (_ACCOUNT / "token").exists()


def own_namespace() -> str | None:
    """The pod's namespace; None outside of pods, and where a kubeconfig is to be used instead."""
    if not in_pod() or os.environ.get("KUBECONFIG"):
        return None
    return (_ACCOUNT / "namespace").read_text().strip()
