"""Why a cluster is not there yet: one sentence and one way out, from what Kubernetes tells.  Pure.

Pods and events are the API server's own objects, as dictionaries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from jupyter_ddl.backends.kubernetes.api import one_line
from jupyter_ddl.backends.kubernetes.pod_main import NAME_IS_KNOWN
from jupyter_ddl.backends.kubernetes.pod_status import (
    View,
    claims_of,
    is_connecting,
    is_ready,
    is_scheduler,
    statuses,
)

__all__ = ["Cause", "diagnose", "operator_deployment", "restart", "start_or_restart"]


# Dask-kubernetes' operator, as far as it is to be seen from a namespace.  Pure.
#
# It mostly lives in another namespace, and the credentials of a notebook see none but their own.

_NAME = "dask-kubernetes-operator"
"""In the labels of Helm's chart, in the name that the manifest gives, and in its image."""
_PROGRAM = "dask_kubernetes.operator"
_FIND = "`kubectl get deployments -A | grep dask` finds it"

Json = dict[str, Any]


def operator_deployment(pods: Iterable[Json]) -> str | None:
    """The name of its deployment, where it is one of these pods and runs.

    Empty for one that belongs to no deployment, None where it is not among them.
    """
    for pod in pods:
        if pod.get("status", {}).get("phase") == "Running" and _is_operator(pod):
            return _deployment(pod["metadata"])
    return None


def restart(deployment: str = "", namespace: str = "") -> str:
    """How an operator is restarted, whoever has installed it in whatever way."""
    if deployment:
        return f"`kubectl rollout restart deployment {deployment} -n {namespace}`"
    return f"{_FIND}, `kubectl rollout restart deployment NAME -n NAMESPACE` restarts it"


def start_or_restart(deployment: str = "", namespace: str = "") -> str:
    """What is to be done about an operator that does nothing."""
    if deployment:
        return f"have its operator restarted: {restart(deployment, namespace)}"
    return f"have the operator's deployment started, or restarted: {restart()}"


def _is_operator(pod: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    named = {labels.get(key) for key in ("app.kubernetes.io/name", "application", "app")}
    if _NAME in named:
        return True
    for container in pod.get("spec", {}).get("containers", []):
        words = [*container.get("command", []), *container.get("args", [])]
        if _NAME in container.get("image", "") or any(_PROGRAM in word for word in words):
            return True
    return False


def _deployment(metadata: Json) -> str:
    """A pod belongs to a ReplicaSet, which has its deployment's name and a hash."""
    template = metadata.get("labels", {}).get("pod-template-hash", "")
    for owner in metadata.get("ownerReferences", []):
        if owner.get("kind") == "ReplicaSet" and template:
            return str(owner["name"]).removesuffix(f"-{template}")
    return ""


_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_NO_SECRET = re.compile(r"secret \"|in Secret ")
_NO_NAME = re.compile(
    r"gaierror|Name or service not known|Temporary failure in name resolution|"
    r"No address associated with hostname|nodename nor servname",
)
_NO_ACCOUNT = re.compile(r"serviceaccounts? \S+ not found|error looking up service account")
_OWN_SECRET = re.compile(r"-(tls|controller)\b")
_NO_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')
_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]*\w)")


class Cause(msgspec.Struct, frozen=True):
    """What holds a cluster up."""

    sentence: str
    fix: str
    after_s: float = 0.0
    """For how long it must have been so before it is believed: it may pass by itself."""
    is_about_room: bool = False
    """There is not room for all workers; those that are there can serve."""

    @property
    def text(self) -> str:
        return f"{self.sentence}; {self.fix}"


def diagnose(view: View) -> Cause | None:
    """The first cause found, the most certain first; None: all goes its way."""
    for poll in (
        _crash,
        _image,
        _config,
        _mount,
        _not_created,
        _claim,
        _unschedulable,
        _names,
        _silent,
        _operator,
    ):
        cause = poll(view)
        if cause is not None:
            return cause
    return None


def _last_words(status: Json) -> str:
    """What a container has left to be told of its end: of its newest one that has left anything."""
    ends = ((status.get(which) or {}).get("terminated") or {} for which in ("state", "lastState"))
    return next(filter(None, (one_line(str(end.get("message", ""))) for end in ends)), "")


def _crash(view: View) -> Cause | None:
    for pod in view.pods:
        for status in statuses(pod):
            ended = status.get("lastState", {}).get("terminated") or status.get("state", {}).get(
                "terminated"
            )
            if not ended:
                continue
            name = pod["metadata"]["name"]
            if ended.get("reason") == "OOMKilled":
                return Cause(
                    f"pod {name} was ended for using more memory than its limit",
                    "give each worker more with --memory",
                )
            n_times = int(status.get("restartCount", 0)) + ("terminated" in status["state"])
            lines = one_line(view.logs.get(name, "")) or _last_words(status)
            log = f"; its last lines: {lines}" if lines else ", and printed nothing"
            if _NO_NAME.search(view.logs.get(name, "")):
                continue  # told by _names
            return Cause(
                f"pod {name} crashed {n_times} times with exit code {ended.get('exitCode')}{log}",
                "does the image hold the notebook's own environment, jupyter_ddl included?",
                after_s=2.0 if lines else 8.0,  # its log comes a little later
            )
    return None


def _image(view: View) -> Cause | None:
    for pod, container, waiting in _waiting(view):
        if waiting["reason"] not in _PULL:
            continue
        why = next(
            (m for m in _messages(view.events, pod, "Failed") if "Back-off" not in m),
            waiting.get("message", waiting["reason"]),
        )
        return Cause(
            f"image {container.get('image')} can't be pulled: {one_line(str(why))}",
            "name one that the nodes can pull with --env IMAGE",
            after_s=5.0,
        )
    return None


def _config(view: View) -> Cause | None:
    for pod, _, waiting in _waiting(view):
        if waiting["reason"] in _CONFIG:
            message = one_line(str(waiting.get("message", waiting["reason"])))
            fix = "correct the pod template, or the image's command and user"
            if _NO_SECRET.search(message):
                fix = "`kubectl create secret generic …` makes it; --secret-env names SECRET:KEY"
            return Cause(
                f"pod {pod['metadata']['name']} can't be made: {message}",
                fix,
                after_s=5.0,
            )
    return None


def _mount(view: View) -> Cause | None:
    for pod in view.pods:
        unmounted = _messages(view.events, pod, "FailedMount")
        for text in (*_messages(view.events, pod, "FailedAttachVolume"), *unmounted):
            if is_connecting(pod):
                continue
            fix = "create what --volume or the pod template names, in the same namespace"
            if _OWN_SECRET.search(text) and view.name in text:
                fix = "it was deleted or never made: stop this cluster and start it again"
            elif "Multi-Attach" in text:
                fix = "name a claim that no other node has in use, or one that many may (RWX)"
            return Cause(
                f"a volume of pod {pod['metadata']['name']} can't be mounted: {one_line(text)}",
                fix,
                after_s=8.0,
            )
    return None


def _not_created(view: View) -> Cause | None:
    """Pods that were refused: by a quota, an admission policy, a limit range."""
    for event in view.events:
        if event.get("reason") != "FailedCreate" or not _is_of(view, event):
            continue
        said = one_line(event.get("message", ""))
        if _NO_ACCOUNT.search(said) and any(is_scheduler(pod) for pod in view.pods):
            continue  # it came a moment after it was looked for
        is_quota = "exceeded quota" in said
        fix = "ask for fewer or smaller workers, or for a larger quota"
        return Cause(
            f"Kubernetes refused a pod: {said}",
            fix if is_quota else "ask the namespace's administrator, or adapt --pod-template to it",
            after_s=3.0,
            is_about_room=is_quota,
        )
    for event in view.events:
        if event.get("involvedObject", {}).get("kind") not in ("DaskCluster", "DaskWorkerGroup"):
            continue
        if event.get("type") == "Error" and _is_of(view, event):
            return Cause(
                f"the operator could not create the cluster: {_outcome(event.get('message', ''))}",
                "correct the option or the pod template's field that Kubernetes refuses (the "
                "operator's log names the field)",
                after_s=5.0,
            )
    return None


def _claim(view: View) -> Cause | None:
    """A claim that keeps a pod from every node."""
    for pod in view.pods:
        said = _refusal(pod)
        name = pod["metadata"]["name"]
        if _NO_CLAIM.search(said):
            return Cause(
                f"pod {name} can't begin: {said}",
                "name a claim of this namespace with --home or --volume; `--home pvc` has one made",
                after_s=3.0,
            )
        if "PersistentVolumeClaim" in said:
            return _unbound(view, pod, said)
        if "volume node affinity conflict" in said and not _INSUFFICIENT.search(said):
            return Cause(
                f"no node may have pod {name}: {said}",
                "its volume is tied to other nodes: free one of those, or name a claim that any "
                "node may mount (RWX)",
                after_s=18.0,
            )
    return None


def _unbound(view: View, pod: Json, said: str) -> Cause:
    claims = claims_of(pod)
    failed = [
        one_line(str(event.get("message", "")))
        for event in view.events
        if event.get("reason") in ("FailedBinding", "ProvisioningFailed")
        and event.get("involvedObject", {}).get("name") in claims
    ]
    what = f"claim {', '.join(claims)} of pod {pod['metadata']['name']} is not bound"
    if not failed:  # drivers take their time
        fix = "`kubectl describe pvc` tells what its StorageClass waits for"
        return Cause(f"{what}: {said}", fix, after_s=90.0)
    if "no storage class is set" in failed[-1]:
        fix = (
            "this Kubernetes has no default StorageClass: name a claim that is bound with "
            "--home pvc:CLAIM, or leave --home out"
        )
        return Cause(f"{what}: {failed[-1]}", fix, after_s=3.0)
    fix = "name a claim that is bound, or have its StorageClass mended"
    return Cause(f"{what}: {failed[-1]}", fix, after_s=20.0)


def _refusal(pod: Json) -> str:
    """Why no node takes a pod; empty where one has, or nobody has looked."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return one_line(condition.get("message", ""))
    return ""


def _unschedulable(view: View) -> Cause | None:
    for pod in view.pods:
        if said := _refusal(pod):
            return Cause(
                f"no node fits pod {pod['metadata']['name']} ({_requests(pod)}): {said}",
                _room(said),
                after_s=18.0,  # pods of a cluster that has been stopped hold their room a while
                is_about_room=True,
            )
    return None


def _room(said: str) -> str:
    lacking = _INSUFFICIENT.findall(said)
    if "nvidia.com/gpu" in lacking:
        return "ask for fewer with --gpus, or wait for a node that has free GPUs"
    if lacking:
        option = {"cpu": "--cpus", "memory": "--memory"}.get(lacking[0], "fewer workers (-n)")
        return f"ask for less with {option} or for fewer workers with -n"
    if "taint" in said:
        return "pass --toleration for the nodes' taint"
    if "selector" in said or "affinity" in said:
        return "correct --node-selector: no node has these labels"
    return "ask for less, or wait for a node"


def _names(view: View) -> Cause | None:
    serves = any(is_scheduler(pod) and is_ready(pod) for pod in view.pods)
    for name, text in view.logs.items():
        # Until the scheduler serves, which takes a busy node long, workers wait as they should.
        is_waiting = serves and "Waiting to connect to" in text and "Registered to" not in text
        if is_waiting and NAME_IS_KNOWN in text:
            return Cause(
                f"pod {name} knows the address of its scheduler, and can't connect to it: a "
                f"network policy is in the way, or its node has no time for it",
                "ask the cluster's administrator which policies there are in this namespace",
                after_s=60.0,
            )
        if is_waiting:
            return Cause(
                f"pod {name} runs but can't find its scheduler by name: the DNS of Kubernetes "
                f"does not answer, or a network policy is in the way",
                "ask the cluster's administrator to check its DNS (kube-system/kube-dns)",
                after_s=7.0,
            )
        if _NO_NAME.search(text):
            return Cause(
                f"pod {name} can't resolve the name of its scheduler: the DNS of Kubernetes does "
                f"not answer",
                "ask the cluster's administrator to check its DNS (kube-system/kube-dns)",
                after_s=3.0,
            )
    return None


def _silent(view: View) -> Cause | None:
    """A container that runs and does not get to its work, for a reason that nobody foresaw."""
    for pod in view.pods:
        name = pod["metadata"]["name"]
        text = view.logs.get(name, "")
        is_there = is_ready(pod) if is_scheduler(pod) else "Registered to" in text
        if not text or is_there or not is_connecting(pod):
            continue
        return Cause(
            f"pod {name} runs but does not start to work; its last lines: {one_line(text)}",
            "does the image hold the notebook's own environment, and does the pod template set "
            "no command?",
            after_s=60.0,
        )
    return None


def _operator(view: View) -> Cause | None:
    """One that does not run, or is deaf: kopf's watchers end one by one, and its probe answers on.

    Each ends for good at a 404, as an API server gives that starts and does not know all kinds yet.
    """
    acted = bool(view.pods or view.cluster.get("status", {}).get("phase"))
    if not acted:
        return Cause(
            f"nobody acts on DaskCluster {view.name}: dask-kubernetes' operator does not run, "
            "does not watch this namespace, or no longer receives events",
            start_or_restart(),
            after_s=22.0,  # one that is being replaced takes 18
        )
    has_scheduler = any(is_scheduler(pod) for pod in view.pods)
    n_made = len(view.pods) - has_scheduler
    if n_made >= view.n_workers and has_scheduler:
        return None
    made = f"{n_made} of {view.n_workers} worker pods"
    if not has_scheduler:
        made = "no scheduler pod"
    return Cause(
        f"the operator has begun with DaskCluster {view.name} but made {made}, and reports no "
        "error: it no longer receives some events, as can happen after a restart of the API "
        "server",
        f"have its deployment restarted: {restart()}",
        after_s=24.0,
    )


# -- reading objects ------------------------------------------------------------------------------


def _waiting(view: View) -> Iterable[tuple[Json, Json, Json]]:
    for pod in view.pods:
        for status in statuses(pod):
            waiting = status.get("state", {}).get("waiting")
            if waiting and waiting.get("reason"):
                yield pod, status, waiting


def _messages(events: Iterable[Json], pod: Json, reason: str) -> list[str]:
    name = pod["metadata"]["name"]
    return [
        str(event.get("message", ""))
        for event in events
        if event.get("reason") == reason and event.get("involvedObject", {}).get("name") == name
    ]


def _outcome(message: str) -> str:
    """What an operator's message comes to, without the way through its source."""
    head, trace, rest = message.partition("Traceback (most recent call last)")
    lines = rest.strip().splitlines()
    return one_line(f"{head} {lines[-1]}" if trace and lines else message)


def _is_of(view: View, event: Json) -> bool:
    name = str(event.get("involvedObject", {}).get("name", ""))
    return name == view.name or name.startswith(f"{view.name}-")


def _requests(pod: Json) -> str:
    wanted = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return ", ".join(f"{key} {value}" for key, value in sorted(wanted.items())) or "no requests"
