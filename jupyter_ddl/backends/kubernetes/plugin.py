"""What clients know of clusters on Kubernetes; what talks to it is imported when it is asked."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from typing import Any

import msgspec

from jupyter_ddl.backends.base import (
    Backend,
    BackendPlugin,
    ControllerHost,
    Finding,
    FoundCluster,
    OnPhase,
    Report,
)
from jupyter_ddl.backends.kubernetes.settings import (
    ARGUMENTS,
    HOME_VARIABLE,
    KubeSettings,
    kube_settings,
    told_in_clear,
    with_image,
)
from jupyter_ddl.backends.kubernetes.spot import known_pool
from jupyter_ddl.errors import BackendError, ClusterError, EnvironmentFileError, ImageError
from jupyter_ddl.grammar import argument
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["KubePlugin"]


log = logging.getLogger(__name__)


class KubePlugin(BackendPlugin):
    """``%cluster start kube``."""

    purpose = "Starts pods on Kubernetes, by way of the operator of Dask."
    arguments = ARGUMENTS
    settings_type = KubeSettings
    doctor_arguments = (
        argument("--print-rbac", action="store_true", help="the smallest Roles, as YAML"),
    )
    start_timeout_s = 900.0
    """Pulling an image of several GB may take so long; what hinders a start is told earlier."""
    requires = "jupyter_ddl[kubernetes]"
    has_controller_host = True

    def missing(self) -> str:
        if importlib.util.find_spec("kr8s") is None:
            return f"kr8s is not installed: pip install '{self.requires}'"
        from jupyter_ddl.backends.kubernetes import lifetime

        return "" if lifetime.is_configured() else "no kubeconfig: set KUBECONFIG to one"

    def settings(self, **values: Any) -> msgspec.Struct:
        for name in ("node_selector", "env", "secret_env"):
            if values.get(name):
                values[name] = dict(values[name])
        if values.pop("spot", False):
            values["spot"] = msgspec.to_builtins(known_pool())
        if not values.get("home") and os.environ.get(HOME_VARIABLE, "").strip():
            values["home"] = os.environ[HOME_VARIABLE].strip()
        path = values.pop("pod_template", None)
        if path is not None:
            from jupyter_ddl.backends.kubernetes.template import read_template

            template = read_template(path)
            values |= {
                "pod_template": template.spec,
                "pod_labels": template.labels,
                "pod_annotations": template.annotations,
            }
        return super().settings(**values)

    def prepare(self, spec: ClusterSpec, on_phase: OnPhase) -> ClusterSpec:
        settings = with_image(kube_settings(spec), on_phase)
        if warning := told_in_clear(settings):
            log.warning("%s", warning)
        return _with(spec, settings)

    def make(self, spec: ClusterSpec) -> Backend:
        from jupyter_ddl.backends.kubernetes.backend import KubeBackend

        return KubeBackend(spec)

    def controller_host(self, spec: ClusterSpec) -> ControllerHost:
        from jupyter_ddl.backends.kubernetes.host import KubeHost

        return KubeHost(spec)

    async def examine(self, spec: ClusterSpec, **values: Any) -> Report:
        from jupyter_ddl.backends.kubernetes.doctor import check_options, examine, rbac_text

        settings = kube_settings(spec)
        if values.get("print_rbac"):
            return Report(text=(await rbac_text(settings.namespace)).rstrip())
        findings: list[Finding] = []
        try:
            settings = await asyncio.to_thread(with_image, settings)
        except (ImageError, EnvironmentFileError) as error:
            # Everything else is looked at all the same.
            findings.append(Finding("image", "broken", error.message))
            settings = msgspec.structs.replace(settings, image=None)
        spec = _with(spec, settings)
        try:
            if not findings:
                check_options(spec)
        except ClusterError as error:
            return Report((Finding("options", "broken", error.message),))
        try:
            seen = await examine(spec)
        except ClusterError as error:
            seen = [Finding("API server", "broken", error.message)]
        seen = [each for each in seen if not findings or each.what != "image"]
        if warning := told_in_clear(settings):
            seen.append(Finding("variables", "unknown", warning))
        return Report((*findings, *seen))

    async def find_elsewhere(self) -> list[FoundCluster]:
        from jupyter_ddl.backends.kubernetes import api, lifetime

        if not lifetime.is_configured():
            return []
        try:
            return await lifetime.find_clusters()
        except BackendError as error:
            # A pod whose account has no right to it, or no operator, has none: nothing to tell.
            if api.own_namespace() is not None and error.status in (403, 404):
                return []
            raise

    async def delete_elsewhere(self, found: FoundCluster) -> None:
        from jupyter_ddl.backends.kubernetes.lifetime import delete_cluster

        await delete_cluster(found)


def _with(spec: ClusterSpec, settings: KubeSettings) -> ClusterSpec:
    return msgspec.structs.replace(spec, settings=msgspec.to_builtins(settings))
