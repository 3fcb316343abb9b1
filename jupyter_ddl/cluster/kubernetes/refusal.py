"""One sentence for what the API server, or the way to it, has refused.  Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["one_line", "refused"]

_MAX_CHARS = 400
_ROLE = "`%cluster doctor --print-rbac` prints the Role that it takes"


def one_line(text: str) -> str:
    """Foreign text, fit to stand in a sentence of ours."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    short = " ".join(plain.split())
    return short if len(short) <= _MAX_CHARS else f"{short[:_MAX_CHARS]}…"


def refused(verb: str, resource: str, namespace: str, error: BaseException) -> str:
    """What was tried, what came back, and what to do about it."""
    answer: Any = getattr(error, "response", None)
    where = f" in namespace {namespace}" if namespace else ""
    tried = f"Kubernetes: {verb} {resource}{where}"
    said = one_line(str(error)) or type(error).__name__
    if answer is None:
        if verb == "find" and not _is_connection(error):
            return (
                f"no credentials for Kubernetes were found ({said}); set KUBECONFIG, or run where "
                f"a service account is mounted"
            )
        return (
            f"{tried}: the API server can't be reached ({type(error).__name__}: {said}); check "
            f"the network and the server's address in the kubeconfig"
        )
    status = int(answer.status_code)
    if status == 401:
        return f"{tried}: the credentials have expired or are wrong (401); log in anew"
    if status == 403 and "exceeded quota" in said:
        return f"{tried}: {said}; ask for fewer or smaller workers, or for a larger quota"
    if status == 403 and "being terminated" in said:
        return f"{tried}: the namespace is being deleted; use another one with --namespace"
    if status == 403:
        return f"{tried} is forbidden (403: {said}); {_ROLE}"
    if status == 404 and 'namespaces "' in said:
        return f"{tried}: {said}; name an existing one with --namespace"
    if status == 404 and resource.startswith("dask"):
        return (
            f"{tried}: this Kubernetes does not know the resource (404), so dask-kubernetes' "
            f"operator is not installed; `helm install --repo https://helm.dask.org --create-"
            f"namespace -n dask-operator --generate-name dask-kubernetes-operator` installs it"
        )
    if status == 422:
        return f"{tried} was refused as invalid: {said}; correct the field that it names"
    return f"{tried} failed ({status}: {said})"


def _is_connection(error: BaseException) -> bool:
    """Whether the way to the server failed, whichever library tells it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"TransportError", "APITimeoutError", "OSError", "SSLError"})
