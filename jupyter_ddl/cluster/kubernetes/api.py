"""The API server, as far as this package needs it: few calls, each with a deadline.

Credentials come from where ``kubectl`` finds them, or from the pod's service account.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import warnings
from typing import Any

from jupyter_ddl.cluster.kubernetes.inside import own_namespace
from jupyter_ddl.cluster.kubernetes.refusal import refused
from jupyter_ddl.errors import ClusterError, KubernetesError

__all__ = ["KubeApi"]

log = logging.getLogger(__name__)

_CALL_S = 10.0
_RETRIES_S = 20.0
"""An API server that restarts is away for a few seconds."""
_PAUSE_S = 0.5
_DASK = "kubernetes.dask.org/v1"
_NO_LOG = "unable to retrieve container logs for"
"""What a kubelet answers, as if it were the log, while it replaces a container."""

Json = dict[str, Any]


class KubeApi:
    """Used on one event loop.

    Every call raises :class:`KubernetesError` for a refusal; its ``status`` is the HTTP status, 0
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
        patience_s : float
            How long an API server that can't be reached is asked again.

        Raises
        ------
        ClusterError
            The extra is not installed, or there are no credentials.
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
        namespace = namespace or own_namespace()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                api = await kr8s.asyncio.api(
                    namespace=namespace, kubeconfig=os.environ.get("KUBECONFIG")
                )
            except Exception as error:  # noqa: BLE001 - plugins of any kind fetch credentials
                raise KubernetesError(refused("find", "credentials", "", error), status=0) from None
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

    async def delete(self, resource: str, name: str, *, grace_s: int | None = None) -> None:
        """Delete, with everything that it owns; what is gone already is deleted.

        Parameters
        ----------
        grace_s : int, optional
            Of a pod: 0 forgets it without asking its node.
        """
        try:
            body: Json = {"propagationPolicy": "Background"}
            if grace_s is not None:
                body["gracePeriodSeconds"] = grace_s
            await self._call("delete", resource, name, body=body)
        except KubernetesError as error:
            if error.status != 404:
                raise

    async def log_tail(self, pod: str, *, previous: bool, n_lines: int) -> str:
        """The last lines that a pod has printed; empty when there are none to be had."""
        params = {"tailLines": str(n_lines), "previous": "true" if previous else "false"}
        try:
            answer = await self._call("get", "pods", f"{pod}/log", params=params, is_text=True)
        except KubernetesError:
            return ""
        text = str(answer["text"]).strip()
        return "" if text.startswith(_NO_LOG) else text

    async def may(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Whether these credentials may do something in the namespace."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": self.namespace,
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": subresource,
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
        while True:
            try:
                return await self._request(verb, resource, name, body, params, is_text)
            except KubernetesError as error:
                again = error.status == 0 or error.status in (429, 500, 502, 503, 504)
                if not again or loop.time() > deadline:
                    raise
                log.warning("%s", error.message)
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
            raise KubernetesError(text, status=status) from None


_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
_PLACES = {
    "daskclusters": (_DASK, "", True),
    "daskworkergroups": (_DASK, "", True),
    "networkpolicies": ("networking.k8s.io/v1", "", True),
    "selfsubjectaccessreviews": ("authorization.k8s.io/v1", "", False),
    "namespaces": ("v1", "", False),
}


def _place(resource: str) -> tuple[str, str, bool]:
    return _PLACES.get(resource, ("v1", "", True))
