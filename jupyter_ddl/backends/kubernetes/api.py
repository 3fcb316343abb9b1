"""The Kubernetes API: a client with deadlines, and readable refusals."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import warnings
from pathlib import Path
from typing import Any

from jupyter_ddl.backends.kubernetes.names import check_dns_label
from jupyter_ddl.errors import BackendError, ClusterError

__all__ = [
    "NAMESPACE_VARIABLE",
    "KubeApi",
    "in_pod",
    "one_line",
    "own_namespace",
    "refused",
    "site_namespace",
]


# Whether this process runs in a pod, and in which namespace.

NAMESPACE_VARIABLE = "JUPYTER_DDL_NAMESPACE"
"""Where clusters are to run, where a site has a namespace for them beside its hub's."""
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_pod() -> bool:
    """Whether a service account is mounted here."""
    return (_ACCOUNT / "token").exists()


def own_namespace() -> str | None:
    """The pod's namespace; None outside of pods, and where a kubeconfig is to be used instead."""
    if not in_pod() or os.environ.get("KUBECONFIG"):
        return None
    return (_ACCOUNT / "namespace").read_text().strip()


def site_namespace() -> str | None:
    """The namespace that a site has for clusters; None where it names none.

    Raises
    ------
    ClusterError
        What it names can't be a namespace.
    """
    name = os.environ.get(NAMESPACE_VARIABLE, "").strip()
    if name:
        check_dns_label(NAMESPACE_VARIABLE, name)
    return name or None


# One sentence for what the API server, or the way to it, has refused.  Pure.

_MAX_CHARS = 400
_ROLE = "`%cluster doctor kube --print-rbac` prints the Role that it takes"


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
        return f"{tried}: the credentials have expired or are wrong (401); log in again"
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


# The API server, as far as this package needs it: few calls, each with a deadline.
#
# Credentials come from where ``kubectl`` finds them, or from the pod's service account.

log = logging.getLogger(__name__)

_CALL_S = 10.0
_RETRIES_S = 20.0
"""An API server that restarts is away for a few seconds."""
_PAUSE_S = 0.5
_DASK = "kubernetes.dask.org/v1"
_NO_LOG = (
    "unable to retrieve container logs for",
    "failed to try resolving symlinks in path",
)
"""How it begins what a kubelet answers, as if it were the log, while it replaces a container, or
when the file has gone."""

Json = dict[str, Any]


class KubeApi:
    """Used on one event loop.

    Every call raises :class:`BackendError` for a refusal; its ``status`` is the HTTP status, 0
    when there was no answer.
    """

    def __init__(self, api: Any, namespace: str, patience_s: float) -> None:
        self._api = api
        self.namespace = namespace
        self._patience_s = patience_s

    @classmethod
    async def connect(
        cls, namespace: str | None = None, *, patience_s: float = _RETRIES_S
    ) -> KubeApi:
        """Find the credentials.

        Parameters
        ----------
        namespace : str, optional
            None: the site's (``JUPYTER_DDL_NAMESPACE``), the pod's, or the kubeconfig's.
        patience_s : float
            How long an API server that can't be reached is asked again.

        Raises
        ------
        ClusterError
            The extra is not installed, the site's namespace is none, or there are no credentials.
        """
        try:
            import kr8s.asyncio
        except ImportError:
            raise ClusterError(
                "a cluster on Kubernetes needs the extra `kubernetes`; "
                "`pip install 'jupyter_ddl[kubernetes]'` installs it"
            ) from None
        # kr8s logs every request, and warns of versions that it does not know.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        namespace = namespace or site_namespace() or own_namespace()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                api = await kr8s.asyncio.api(
                    namespace=namespace, kubeconfig=os.environ.get("KUBECONFIG")
                )
            except Exception as error:  # noqa: BLE001 - plugins of any kind fetch credentials
                raise BackendError(refused("find", "credentials", "", error), status=0) from None
        return cls(api, namespace or str(api.namespace), patience_s)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._api.auth.server)

    @property
    def raw(self) -> Any:
        """The library's own client."""
        return self._api

    async def aclose(self) -> None:
        """Close the connections; another call would open new ones."""
        session = self._api._session  # kr8s 0.20 has no call for it
        if session is not None:
            await session.aclose()

    # -- calls -----------------------------------------------------------------------------------

    async def get(self, resource: str, name: str) -> Json:
        return await self._call("get", resource, name)

    async def list(self, resource: str, **params: str) -> list[Json]:
        answer = await self._call("list", resource, params=params)
        return list(answer.get("items", []))

    async def create(self, resource: str, body: Json, *, is_dry_run: bool = False) -> Json:
        """Create, or with ``is_dry_run`` have it examined only."""
        params = {"dryRun": "All"} if is_dry_run else None
        return await self._call("create", resource, body=body, params=params)

    async def patch(self, resource: str, name: str, body: Json) -> Json:
        return await self._call("patch", resource, name, body=body)

    async def delete(
        self, resource: str, name: str, *, grace_s: int | None = None, version: str | None = None
    ) -> None:
        """Delete, with everything that it owns; what is gone already is deleted.

        Parameters
        ----------
        grace_s : int, optional
            Of a pod: 0 forgets it without asking its node.
        version : str, optional
            Only while it is of this resource version: what was changed since stays (status 409).
        """
        try:
            body: Json = {"propagationPolicy": "Background"}
            if grace_s is not None:
                body["gracePeriodSeconds"] = grace_s
            if version is not None:
                body["preconditions"] = {"resourceVersion": version}
            await self._call("delete", resource, name, body=body)
        except BackendError as error:
            if error.status != 404:
                raise

    async def log_tail(self, pod: str, container: str, *, previous: bool, n_lines: int) -> str:
        """The last lines that a container has printed; empty when there are none to be had."""
        params = {"tailLines": str(n_lines), "previous": "true" if previous else "false"}
        params["container"] = container
        try:
            answer = await self._call("get", "pods", f"{pod}/log", params=params, is_text=True)
        except BackendError:
            return ""
        text = str(answer["text"]).strip()
        return "" if text.startswith(_NO_LOG) else text

    async def may(
        self,
        verb: str,
        group: str,
        resource: str,
        subresource: str = "",
        *,
        name: str = "",
        everywhere: bool = False,
    ) -> bool:
        """Whether these credentials may do something in the namespace, or in no namespace.

        Parameters
        ----------
        name : str
            Of the one object that it is about; empty: of any.
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": "" if everywhere else self.namespace,
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": subresource,
                    "name": name,
                }
            },
        }
        answer = await self._call("create", "selfsubjectaccessreviews", body=review)
        return bool(answer["status"]["allowed"])

    # -- the way there ---------------------------------------------------------------------------

    async def _call(
        self,
        verb: str,
        resource: str,
        name: str = "",
        *,
        body: Json | None = None,
        params: dict[str, str] | None = None,
        is_text: bool = False,
    ) -> Json:
        """One request; one that did not reach the server is tried again for a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        is_first = True
        while True:
            try:
                return await self._request(verb, resource, name, body, params, is_text)
            except BackendError as error:
                if verb == "create" and body is not None and error.status == 409 and not is_first:
                    # The try before has made it, and only its answer was lost.
                    made = str(body["metadata"]["name"])
                    return await self._request("get", resource, made, None, None, False)
                again = error.status == 0 or error.status in (429, 500, 502, 503, 504)
                if not again or loop.time() > deadline:
                    raise
                log.warning("%s", error.message)
            is_first = False
            await asyncio.sleep(_PAUSE_S)

    async def _request(
        self,
        verb: str,
        resource: str,
        name: str,
        body: Json | None,
        params: dict[str, str] | None,
        is_text: bool,
    ) -> Json:
        version, base, is_namespaced = _place(resource)
        request: dict[str, Any] = {"params": params or {}}
        if body is not None:
            request["json"] = body
        if verb == "patch":
            request["headers"] = {"Content-Type": "application/merge-patch+json"}
        try:
            async with (
                asyncio.timeout(_CALL_S),
                self._api.call_api(
                    _METHODS[verb],
                    version=version,
                    base=base,
                    namespace=self.namespace if is_namespaced else None,
                    url=f"{resource}/{name}" if name else resource,
                    **request,
                ) as response,
            ):
                return {"text": response.text} if is_text else dict(response.json())
        except Exception as error:  # noqa: BLE001 - httpx, ssl, anyio and kr8s have trees of their own
            answer = getattr(error, "response", None)
            status = 0 if answer is None else int(answer.status_code)
            if status == 0 and isinstance(error, ssl.SSLError):
                status = 495  # no retry: another try meets the same certificate
            text = refused(verb, resource, self.namespace, error)
            raise BackendError(text, status=status) from None


_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
_PLACES = {
    "daskclusters": (_DASK, "", True),
    "daskworkergroups": (_DASK, "", True),
    "networkpolicies": ("networking.k8s.io/v1", "", True),
    "jobs": ("batch/v1", "", True),
    "roles": ("rbac.authorization.k8s.io/v1", "", True),
    "rolebindings": ("rbac.authorization.k8s.io/v1", "", True),
    "selfsubjectaccessreviews": ("authorization.k8s.io/v1", "", False),
    "namespaces": ("v1", "", False),
    "nodes": ("v1", "", False),
}


def _place(resource: str) -> tuple[str, str, bool]:
    return _PLACES.get(resource, ("v1", "", True))
