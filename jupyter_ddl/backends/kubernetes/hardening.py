"""What every pod of ours gives up: as the *restricted* standard asks, and root's file system.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from typing import Any

__all__ = ["container_security", "pod_security"]

_USER_ID = 1000


def pod_security() -> dict[str, Any]:
    """Of a pod's spec: no token of Kubernetes, and one user who is not root."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER_ID,
            "runAsGroup": _USER_ID,
            "fsGroup": _USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def container_security() -> dict[str, Any]:
    """Of a container's spec: no capability, and nothing written but in its volumes."""
    return {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }
    }
