"""What a cluster is to be: given to a new controller on its standard input."""

from __future__ import annotations

import msgspec

__all__ = ["MAX_WORKERS", "ClusterSpec", "KubeSpec", "SchedulerSpec"]

MAX_WORKERS = 1024
"""Most workers that a cluster is started with, or scaled to."""


class KubeSpec(msgspec.Struct, frozen=True):
    """What only a cluster on Kubernetes has."""

    image: str | None = None
    """Of scheduler and workers.  The client chooses it: a backend does not guess."""
    registry: str | None = None
    """Where an image that is built of a directory is pushed to."""
    namespace: str | None = None
    """None: the one of the kubeconfig's context, or the notebook's own pod's."""
    slots: int = 1
    """Of each pod: so many ranks side by side, which share what the pod holds."""
    gpus: int = 0
    """``nvidia.com/gpu`` of each worker."""
    node_selector: dict[str, str] = {}
    tolerations: tuple[str, ...] = ()
    """As ``kubectl taint`` writes them: ``key=value:Effect``, ``key:Effect``, ``key``."""
    priority: str | None = None
    """Name of a PriorityClass."""
    env: dict[str, str] = {}
    volumes: tuple[str, ...] = ()
    """``pvc:CLAIM:/path``, ``configmap:NAME:/path`` or ``secret:NAME:/path``."""
    pod_template: str | None = None
    """A pod's spec in Kubernetes' own form, as JSON; it has the last word."""
    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}
    lease_s: float = 300.0
    """The pods end by themselves when the controller was silent for so long."""


class SchedulerSpec(msgspec.Struct, frozen=True):
    """A Dask scheduler that runs already, and the files that TLS to it takes."""

    address: str = ""
    """``tls://HOST:PORT``, or ``tcp://HOST:PORT`` where there is no TLS."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    patience_s: float = 120.0
    """A scheduler that is silent for longer is taken for lost, even if its connection stands."""


class ClusterSpec(msgspec.Struct, frozen=True):
    """A cluster to start.  ``None`` means: as the host (its cgroup, not its CPU count) allows."""

    name: str = "local"
    backend: str = "local"
    n_workers: int | None = None
    cpus_per_worker: int = 1
    """CPUs of a worker's one slot; the threads of numerical libraries in a rank."""
    memory_per_worker_bytes: int | None = None
    """A rank whose process tree uses more is ended with failure kind ``memory``."""
    idle_timeout_s: float = 1800.0
    max_age_s: float = 86400.0
    prewarm: tuple[str, ...] = ()
    """Installed packages that the zygotes import ahead of the first run."""
    start_timeout_s: float = 60.0
    worker_timeout_s: float = 30.0
    """A worker that has been silent for so long is given up, and its trials run elsewhere."""
    shrink_after_s: float = 30.0
    """An adaptive cluster keeps workers that have nothing to do for so long."""
    kubernetes: KubeSpec = KubeSpec()
    scheduler: SchedulerSpec = SchedulerSpec()
    """Of ``%cluster connect``."""
