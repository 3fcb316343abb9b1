"""One sentence for every way in which a cluster does not start; the objects are as servers send
them, cut to what is read."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes import diagnosis
from jupyter_ddl.backends.kubernetes.api import one_line, refused
from jupyter_ddl.backends.kubernetes.backend import worker_names_to_stop
from jupyter_ddl.backends.kubernetes.diagnosis import Cause, diagnose
from jupyter_ddl.backends.kubernetes.names import object_name, selector_of
from jupyter_ddl.backends.kubernetes.pod_main import NAME_IS_KNOWN
from jupyter_ddl.backends.kubernetes.pod_status import View, image_digest, progress

Json = dict[str, Any]


def pod(name: str = "kube-1-default-worker-x", **status: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {"dask.org/component": "worker"}},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {
                    "env": [{"name": "DASK_WORKER_NAME", "value": name}],
                    "resources": {"requests": {"cpu": "900m", "nvidia.com/gpu": "4"}},
                }
            ],
        },
        "status": status,
    }


SCHEDULER: Json = {
    "metadata": {"name": "kube-1-scheduler-x", "labels": {"dask.org/component": "scheduler"}},
    "spec": {"nodeName": "n1", "containers": [{}]},
    "status": {},
}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SERVING: Json = {**SCHEDULER, "status": READY}


def waiting(reason: str, message: str = "") -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"image": "team/image:1", "state": state}])


def event(reason: str, message: str, name: str = "kube-1-default-worker-x", **more: str) -> Json:
    about = {"name": name, "kind": more.pop("kind", "Pod")}
    return {"reason": reason, "message": message, "involvedObject": about, **more}


def poll(*pods: Json, events: tuple[Json, ...] = (), **more: Any) -> Cause | None:
    """The first hindrance of a cluster that has its scheduler."""
    cluster = {"status": {"phase": "Running"}}
    return diagnose(View("kube-1", cluster, (*pods, SCHEDULER), events, **more))


def unschedulable(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    found = pod(conditions=[condition])
    del found["spec"]["nodeName"]
    return found


@pytest.mark.parametrize(
    ("cause", "sentence", "fix"),
    [
        (
            poll(
                waiting("ImagePullBackOff", "Back-off pulling image"),
                events=(event("Failed", "manifest unknown"),),
            ),
            "image team/image:1 can't be pulled: manifest unknown",
            "--env IMAGE",
        ),
        (
            poll(unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")),
            "no node fits",
            "--gpus",
        ),
        (poll(unschedulable("0/3 nodes: 3 Insufficient memory.")), "no node fits", "--memory"),
        (poll(unschedulable("0/1 nodes: 1 node(s) had taint {a: b}")), "no node", "--toleration"),
        (
            poll(unschedulable("0/1 nodes: 1 node(s) didn't match node selector.")),
            "no node",
            "--node-selector",
        ),
        (
            poll(
                pod(
                    containerStatuses=[
                        {
                            "restartCount": 2,
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                        }
                    ]
                ),
                logs={"kube-1-default-worker-x": "Traceback\nImportError: no torch"},
            ),
            "crashed 2 times with exit code 1; its last lines: Traceback ImportError: no torch",
            "jupyter_ddl included",
        ),
        (
            poll(
                pod(
                    containerStatuses=[
                        {
                            "restartCount": 1,
                            "state": {"running": {}},
                            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                        }
                    ]
                )
            ),
            "more memory than its limit",
            "--memory",
        ),
        (
            poll(pod(), events=(event("FailedMount", 'secret "kube-1-tls" not found'),)),
            "can't be mounted",
            "start it again",
        ),
        (
            poll(events=(event("FailedCreate", "exceeded quota: small", "kube-1-scheduler-7"),)),
            "Kubernetes refused a pod: exceeded quota: small",
            "or for a larger quota",
        ),
        (
            poll(
                events=(event("FailedCreate", "violates PodSecurity", "kube-1-default-worker-x-1"),)
            ),
            "violates PodSecurity",
            "--pod-template",
        ),
        (
            poll(
                events=(
                    event("Logging", "Invalid: spec.x", "kube-1", kind="DaskCluster", type="Error"),
                )
            ),
            "could not create the cluster: Invalid: spec.x",
            "correct",
        ),
        (
            poll(
                events=(
                    event(
                        "Logging",
                        "Handler failed.\nTraceback (most recent call last):\n  File x\nBad: y",
                        "kube-1",
                        kind="DaskCluster",
                        type="Error",
                    ),
                )
            ),
            "could not create the cluster: Handler failed. Bad: y",
            "correct",
        ),
        (
            poll(
                pod(containerStatuses=[{"state": {"running": {}}}]),
                logs={"kube-1-default-worker-x": "socket.gaierror: [Errno -3]"},
            ),
            "DNS",
            "kube-dns",
        ),
        (
            diagnose(
                View(
                    "kube-1",
                    {"status": {"phase": "Running"}},
                    (pod(containerStatuses=[{"state": {"running": {}}}]), SERVING),
                    logs={"kube-1-default-worker-x": "Waiting to connect to: tls://kube-1:8786"},
                )
            ),
            "can't find its scheduler by name",
            "kube-dns",
        ),
        (
            poll(
                pod(containerStatuses=[{"state": {"running": {}}}]),
                logs={"kube-1-default-worker-x": "loading everything"},
            ),
            "does not start to work; its last lines: loading everything",
            "command",
        ),
        (diagnose(View("kube-1", {}, ())), "operator does not run", "get deployments -A"),
        (
            diagnose(View("kube-1", {"status": {"phase": "Created"}}, ())),
            "made no scheduler pod",
            "rollout restart",
        ),
        (poll(pod(), n_workers=2), "made 1 of 2 worker pods", "rollout restart"),
        (poll(waiting("CreateContainerConfigError", "runs as root")), "runs as root", "template"),
        (
            poll(waiting("CreateContainerConfigError", 'secret "hub" not found')),
            'secret "hub" not found',
            "kubectl create secret",
        ),
        (
            poll(waiting("CreateContainerConfigError", "couldn't find key a in Secret ns/hub")),
            "couldn't find key a",
            "--secret-env names SECRET:KEY",
        ),
    ],
)
def test_each_hindrance_has_its_sentence_and_its_fix(
    cause: Cause | None, sentence: str, fix: str
) -> None:
    assert cause is not None
    assert sentence in cause.sentence
    assert fix in cause.fix


def test_what_goes_its_way_is_no_hindrance() -> None:
    assert poll() is None
    assert poll(pod(), n_workers=1) is None
    connected = {"kube-1-default-worker-x": "Registered to: tls://kube-1.svc:8786"}
    assert poll(pod(containerStatuses=[{"state": {"running": {}}}]), logs=connected) is None
    assert poll(waiting("ContainerCreating")) is None
    assert poll(pod(containerStatuses=[{"state": {"running": {}}, "restartCount": 0}])) is None
    doubt = event("Logging", "Unable to connect", "kube-1", kind="DaskCluster", type="Warning")
    assert poll(events=(doubt,)) is None
    others = event("FailedCreate", "exceeded quota", "other-1-scheduler")
    assert poll(events=(others,)) is None


def test_who_knows_the_schedulers_name_is_given_time() -> None:
    known = f"{NAME_IS_KNOWN}: kube-1.svc\nWaiting to connect to: tls://kube-1.svc:8786"
    runs = pod(containerStatuses=[{"state": {"running": {}}}])
    begun = {"status": {"phase": "Running"}}
    cause = diagnose(
        View("kube-1", begun, (runs, SERVING), logs={"kube-1-default-worker-x": known})
    )
    assert cause is not None
    assert "DNS" not in cause.text
    assert "network policy" in cause.sentence
    assert cause.after_s >= 60.0


def test_room_for_some_is_not_room_for_none() -> None:
    cause = poll(unschedulable("0/1 nodes: 1 Insufficient cpu."))
    assert cause is not None
    assert cause.is_about_room
    assert cause.after_s > 0


def test_the_image_is_what_a_node_has_resolved_it_to() -> None:
    waits = pod(containerStatuses=[{"name": "worker", "imageID": ""}])
    side = {"name": "side", "imageID": "other@sha256:2"}
    runs = pod(containerStatuses=[side, {"name": "worker", "imageID": "team/image@sha256:1"}])
    local = pod(containerStatuses=[{"name": "worker", "imageID": "sha256:3"}])
    assert image_digest([waits, runs], "team/image:new") == "team/image@sha256:1"
    assert image_digest([waits, local], "own:dev") == "own:dev@sha256:3"
    assert image_digest([waits], "own:dev") == ""


def test_foreign_text_stays_one_short_line() -> None:
    text = one_line("a\n\x1b[31mred\x00" + "b" * 1000)
    assert text.isprintable()
    assert len(text) < 450


def test_progress_counts_pods_by_step() -> None:
    pulling = waiting("ContainerCreating")
    line = progress(
        View("kube-1", {}, (pulling,), (event("Pulling", ""),), n_workers=2, n_connected=0)
    )
    assert line == "pods: 2 asked for, 1 pulling, 0 of 2 workers connected"
    assert "2 asked for" in progress(View("kube-1", {}, (), n_workers=1))
    ending = progress(View("kube-1", {}, (), n_workers=1, n_ending=3))
    assert ending == (
        "pods: 2 asked for (ending pods that still hold room: 3), 0 of 1 workers connected"
    )
    assert "1 waiting for a node" in progress(View("k", {}, (unschedulable(""),), n_workers=1))


class _Answer:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


class _Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.response = _Answer(status)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_Refusal(401, "Unauthorized"), "the credentials have expired"),
        (_Refusal(403, 'cannot create resource "daskclusters"'), "--print-rbac"),
        (_Refusal(403, "exceeded quota: q"), "larger quota"),
        (_Refusal(403, "because it is being terminated"), "--namespace"),
        (_Refusal(404, "the server could not find the requested resource"), "helm install"),
        (_Refusal(404, 'namespaces "space" not found'), "--namespace"),
        (_Refusal(422, "spec.worker: Invalid value"), "was refused as invalid: spec.worker"),
        (_Refusal(500, "etcd"), "500"),
        (ConnectionError("refused"), "the API server can't be reached"),
    ],
)
def test_each_refusal_of_the_server_has_its_sentence(error: Exception, expected: str) -> None:
    text = refused("create", "daskclusters", "space", error)
    assert expected in text
    assert "\n" not in text


def test_those_not_connected_go_first_and_the_busy_ones_last() -> None:
    pods = [pod("a"), pod("b"), pod("c"), pod("d")]
    pods[3]["metadata"]["deletionTimestamp"] = "now"
    connected = {"a": "tls://1", "b": "tls://2"}
    assert worker_names_to_stop(pods, connected, ["tls://1"], 2) == ("c",)
    assert worker_names_to_stop(pods, connected, ["tls://1"], 1) == ("c", "b")
    assert worker_names_to_stop(pods, connected, [], 5) == ()


def test_names_leave_room_for_what_the_operator_appends() -> None:
    name = object_name("n" * 40)
    assert len(f"{name}-default-worker-0123456789-7975c6f7bf-bq7r4") <= 80
    assert object_name("kube") != object_name("kube")
    assert selector_of("me", "kube").count("=") == 3


def test_a_worker_that_waits_for_a_scheduler_which_starts_yet_is_given_a_minute() -> None:
    logs = {"kube-1-default-worker-x": "Waiting to connect to: tls://kube-1:8786"}
    cause = poll(pod(containerStatuses=[{"state": {"running": {}}}]), logs=logs)
    assert cause is not None
    assert "DNS" not in cause.text
    assert cause.after_s >= 60.0


# -- claims ----------------------------------------------------------------------------------------


def held_up(message: str, *, claim: str = "runs") -> Json:
    found = unschedulable(message)
    found["spec"]["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]
    return found


def of_claim(reason: str, message: str, claim: str = "runs") -> Json:
    return event(reason, message, claim, kind="PersistentVolumeClaim")


_UNBOUND = "0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims."
_NO_CLASS = "no persistent volumes available for this claim and no storage class is set"


@pytest.mark.parametrize(
    ("message", "events", "sentence", "fix", "at_most_s"),
    [
        (
            'persistentvolumeclaim "runs" not found',
            (),
            'can\'t begin: persistentvolumeclaim "runs" not found',
            "`--home pvc` has one made",
            5.0,
        ),
        (
            _UNBOUND,
            (of_claim("FailedBinding", _NO_CLASS),),
            f"claim runs of pod kube-1-default-worker-x is not bound: {_NO_CLASS}",
            "has no default StorageClass",
            5.0,
        ),
        (
            _UNBOUND,
            (of_claim("ProvisioningFailed", 'storageclass "fast" not found'),),
            'is not bound: storageclass "fast" not found',
            "have its StorageClass mended",
            20.0,
        ),
        # Volumes of a cloud take their time: patience, and no word about another claim's trouble.
        (
            _UNBOUND,
            (of_claim("ProvisioningFailed", "of another", "data"),),
            "is not bound: 0/2 nodes",
            "kubectl describe pvc",
            90.0,
        ),
        (
            "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
            (),
            "no node may have pod",
            "tied to other nodes",
            18.0,
        ),
    ],
)
def test_a_claim_that_keeps_a_pod_from_every_node_is_told(
    message: str, events: tuple[Json, ...], sentence: str, fix: str, at_most_s: float
) -> None:
    cause = poll(held_up(message), events=events)
    assert cause is not None
    assert sentence in cause.sentence
    assert fix in cause.fix
    assert cause.after_s <= at_most_s
    assert not cause.is_about_room


def test_a_lack_of_room_beside_a_claims_nodes_is_a_lack_of_room() -> None:
    said = "0/2 nodes: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict."
    cause = poll(held_up(said))
    assert cause is not None
    assert "--cpus" in cause.fix


def test_driver_that_takes_its_time_is_waited_for() -> None:
    cause = poll(held_up(_UNBOUND))
    assert cause is not None
    assert cause.after_s >= 60.0


@pytest.mark.parametrize("which", ["state", "lastState"])
def test_what_a_container_has_left_to_be_told_is_found_whichever_end_has_it(which: str) -> None:
    ends = {each: {"terminated": {"exitCode": 1}} for each in ("state", "lastState")}
    ends[which]["terminated"]["message"] = "may not delete daskclusters"  # type: ignore[assignment]
    assert diagnosis._last_words({"restartCount": 1, **ends}) == "may not delete daskclusters"
    assert diagnosis._last_words({"state": {"waiting": {}}, "lastState": {}}) == ""
