"""Pods that pass the *restricted* Pod Security Standard, and templates laid over them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.certificates import port_keys
from jupyter_ddl.backends.kubernetes.belongings import (
    controller_secret,
    last_resort,
    network_policy,
    own_account,
    tls_secret,
)
from jupyter_ddl.backends.kubernetes.doctor import check_options
from jupyter_ddl.backends.kubernetes.manifest import (
    dask_cluster,
    passed_on,
    scheduler_pod,
    worker_pod,
)
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.backends.kubernetes.template import dropped_fields, merged, read_template
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

_ALLOWED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip


def settings(image: str, **kube: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(KubeSettings(image, **kube))
    return found


def spec(**kube: Any) -> ClusterSpec:
    chosen = settings(**{"image": "team/image:1", **kube})
    return ClusterSpec(name="kube", backend="kube", settings=chosen)


def worker(wanted: ClusterSpec) -> dict[str, Any]:
    return worker_pod(wanted, "kube-abc", "space")


def violations(pod: dict[str, Any]) -> list[str]:
    """What the restricted standard forbids, rule by rule as its page lists them."""
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    for volume in pod["volumes"]:
        found += [f"volume {kind}" for kind in volume.keys() - {"name"} - _ALLOWED_VOLUMES]
    outer = pod["securityContext"]
    for container in pod["containers"]:
        inner = container.get("securityContext", {})
        if inner.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation")
        if inner.get("privileged"):
            found.append("privileged")
        if not inner.get("runAsNonRoot", outer.get("runAsNonRoot")):
            found.append("runAsNonRoot")
        if inner.get("runAsUser", outer.get("runAsUser")) == 0:
            found.append("runAsUser")
        profile = inner.get("seccompProfile", outer.get("seccompProfile", {}))
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            found.append("seccompProfile")
        if "ALL" not in inner.get("capabilities", {}).get("drop", []):
            found.append("capabilities.drop")
        if set(inner.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
            found.append("capabilities.add")
        if any("hostPort" in port for port in container.get("ports", [])):
            found.append("hostPort")
    return found


@pytest.mark.parametrize(
    "wanted",
    [
        spec(),
        spec(gpus=2, volumes=("pvc:data:/data",), tolerations=("gpu=yes:NoSchedule",)),
        spec(env={"A": "1"}, node_selector={"disk": "ssd"}, priority="low"),
    ],
)
def test_pods_pass_the_restricted_standard_and_more(wanted: ClusterSpec) -> None:
    for pod in (worker(wanted), scheduler_pod(wanted, "kube-abc")):
        assert violations(pod) == []
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
            assert set(container["resources"]["requests"]) >= {"cpu", "memory"}


def test_the_check_itself_can_fail() -> None:
    pod = worker(spec())
    pod["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}
    pod["hostNetwork"] = True
    pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}})
    assert violations(pod) == [
        "hostNetwork", "volume hostPath", "capabilities.drop", "capabilities.add",
    ]  # fmt: skip


def test_options_become_fields() -> None:
    pod = worker(
        spec(
            gpus=2,
            node_selector={"disk": "ssd"},
            tolerations=("gpu=yes:NoSchedule", "spot"),
            priority="low",
            env={"MODE": "fast"},
            secret_env={"HF_TOKEN": "hub:token"},
            volumes=("pvc:data:/data", "secret:keys:/keys"),
        )
    )
    container = pod["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert pod["priorityClassName"] == "low"
    assert {"name": "MODE", "value": "fast"} in container["env"]
    reference = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} in container["env"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/data", "/keys"} <= mounts


def test_slots_of_a_pod_have_what_they_were_asked_for_each() -> None:
    pod = worker(
        ClusterSpec("kube", "kube", 1, 2, 1 << 30, settings=settings("a", slots=4, gpus=2))
    )
    (container,) = pod["containers"]
    assert "--nthreads=4" in container["args"]
    assert container["resources"]["limits"] == {
        "cpu": "8",
        "memory": str((4 << 30) + (400 << 20)),
        "nvidia.com/gpu": "2",
    }


def test_two_workers_of_one_cpu_and_their_scheduler_fit_on_two_cpus() -> None:
    def millis(pod: dict[str, Any]) -> int:
        requests = [each["resources"]["requests"]["cpu"] for each in pod["containers"]]
        return sum(int(each.removesuffix("m")) for each in requests)

    assert 2 * millis(worker(spec())) + millis(scheduler_pod(spec(), "kube-abc")) <= 2000


def test_dask_reads_the_configuration_that_pods_inherit() -> None:
    import dask.config

    variables = {each["name"]: each.get("value") for each in worker(spec())["containers"][0]["env"]}
    found = dask.config.deserialize(variables["DASK_INTERNAL_INHERIT_CONFIG"])
    assert found["distributed"]["comm"]["require-encryption"] is True


def test_a_template_has_the_last_word_and_keeps_what_it_does_not_name() -> None:
    template = {
        "nodeSelector": {"zone": "a"},
        "containers": [
            {
                "name": "anything",
                "resources": {"limits": {"memory": "9Gi"}},
                "env": [{"name": "HOME", "value": "/data"}, {"name": "NEW", "value": "1"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "sidecar", "image": "side:1"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    pod = merged(worker(spec(node_selector={"disk": "ssd"})), template)
    container, sidecar = pod["containers"]
    assert pod["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert container["name"] == "worker"
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "9Gi"}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert (variables["HOME"], variables["NEW"]) == ("/data", "1")
    assert "DASK_SCHEDULER_ADDRESS" in variables
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp", "/data"}
    assert {volume["name"] for volume in pod["volumes"]} == {"scratch", "shm", "tls", "data"}
    assert sidecar["name"] == "sidecar"


def test_a_template_moves_the_scheduler_but_does_not_resize_it() -> None:
    template = {
        "priorityClassName": "low",
        "containers": [{"resources": {"limits": {"cpu": "64"}}}],
    }
    wanted = spec(pod_template=json.dumps(template))
    pod = scheduler_pod(wanted, "kube-abc")
    assert pod["priorityClassName"] == "low"
    assert pod["containers"][0]["resources"]["limits"]["cpu"] == "1"


def test_labels_and_annotations_of_a_template_reach_all_pods(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "metadata: {name: x, labels: {team: a}, annotations: {sidecar/inject: 'no'}}\n"
        "spec: {containers: [{resources: {limits: {cpu: 2, memory: 1Gi}}}]}\n"
    )
    template = read_template(str(path))
    notes = {"pod_labels": template.labels, "pod_annotations": template.annotations}
    wanted = spec(pod_template=template.spec, **notes)
    made = dask_cluster(wanted, "kube-1", "n", user="ann", n_workers=1)["spec"]
    expected = {"labels": {"team": "a"}, "annotations": {"sidecar/inject": "no"}}
    assert made["worker"]["metadata"] == made["scheduler"]["metadata"] == expected
    # A DaskCluster takes quantities as text alone.
    assert made["worker"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2"


def test_what_an_api_server_leaves_out_is_found() -> None:
    sent = {"a": 1, "b": {"c": [{"d": 1, "new": 2}], "none": {}}, "old": None}
    kept = {"a": 1, "b": {"c": [{"d": 1, "theirs": 3}]}, "default": 1}
    assert list(dropped_fields(sent, kept)) == ["spec.b.c[0].new"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (spec(namespace="Not_One"), "not a DNS label"),
        (spec(gpus=-1), "--gpus -1"),
        (spec(gpus=100_000), "--gpus 100000: expected 0 to 64"),
        (
            ClusterSpec("kube", memory_per_worker_bytes=1 << 50, settings=settings("a")),
            "64MB to 64TB",
        ),
        (spec(volumes=("data:/x",)), "KIND:NAME:/path"),
        (spec(volumes=("pvc:a:/tmp/",)), "pods have their own at /tmp; choose another"),
        (spec(volumes=("pvc:a:/x", "secret:b:/x/")), "two volumes at /x"),
        (spec(volumes=("pvc:a:/x/../..",)), "expected a path without : and .."),
        (spec(tolerations=("",)), "--toleration ''"),
        (spec(tolerations=("spot:Sometimes",)), "EFFECT is NoSchedule"),
        (spec(priority="Very High"), "name of a PriorityClass"),
        (spec(node_selector={"disk": "ü"}), "--node-selector 'disk=ü' can't be a label"),
        (spec(node_selector={"a/b/c": "x"}), "--node-selector 'a/b/c=x'"),
        (spec(slots=0), "--slots 0: expected 1 to 1024"),
        (spec(lease_s=1.0), "--lease is 1 s; expected 5 s to 24 h"),
        (spec(env={"1A": "x"}), "not the name of a variable"),
        (spec(secret_env={"A": "abc"}), "--secret-env A=…: expected NAME=SECRET:KEY"),
        (spec(secret_env={"A": "My_Secret:x"}), "--secret-env A=…: expected NAME=SECRET:KEY"),
        (spec(secret_env={"1A": "x:y"}), "--secret-env 1A=…: expected NAME=SECRET:KEY"),
        (spec(env={"A": "1"}, secret_env={"A": "x:y"}), "both set A; leave one out"),
        (spec(home="pvc:Not_One"), "--home 'pvc:Not_One': expected pvc:CLAIM"),
        (spec(home="pvc:runs:../x"), "--home 'pvc:runs:../x': expected pvc:CLAIM"),
        (spec(home="/data"), "expected pvc:CLAIM, pvc:CLAIM:FOLDER"),
        (spec(home="pvc:"), "or pvc for a claim of your own"),
        (spec(home_size="20Gi"), "--home is not given; leave it out, or pass --home pvc"),
        (spec(home="pvc:runs", home_size="20Gi"), "--home is pvc:runs; leave it out"),
        (spec(home="pvc", home_size="20GB"), "--home-size '20GB': expected a number with"),
        (spec(service_account="Not_One"), "--service-account 'Not_One' is not a DNS label"),
        (spec(image=None), "--env IMAGE"),
        (
            spec(pod_template='{"containers": [{"volumeMounts": [{"name": "no"}]}]}'),
            "volumeMounts names volume 'no'",
        ),
        (ClusterSpec("kube", memory_per_worker_bytes=2, settings=settings("a")), "2GB?"),
        (ClusterSpec("kube", cpus_per_worker=0, settings=settings("a")), "--cpus 0"),
        (ClusterSpec("Kube", settings=settings("a")), "not a DNS label"),
    ],
)
def test_absurd_wishes_are_refused_before_anything_is_made(
    wanted: ClusterSpec, expected: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        check_options(wanted)
    assert expected in caught.value.message


def test_places_that_pods_mount_themselves_are_known_before() -> None:
    for mount in worker(spec())["containers"][0]["volumeMounts"]:
        with pytest.raises(ClusterError, match="pods have their own"):
            check_options(spec(volumes=(f"pvc:data:{mount['mountPath']}",)))


def made(**kube: Any) -> dict[str, Any]:
    """A DaskCluster as the API server returns it."""
    found = dask_cluster(
        spec(**kube), "kube-abc", "space", user="me", n_workers=3, account="controllers"
    )
    found["metadata"]["uid"] = "u-1"
    return found


def test_whom_workers_act_as_is_not_whom_their_controller_acts_as() -> None:
    """Nor does a container in which others' code may run come near the controller's token."""
    template = {
        "serviceAccountName": "reads-a-store",
        "serviceAccount": "reads-a-store",
        "automountServiceAccountToken": True,
        "shareProcessNamespace": True,
        "priorityClassName": "low",
    }
    found = made(pod_template=json.dumps(template))["spec"]
    assert found["worker"]["spec"].items() >= template.items()
    scheduler = found["scheduler"]["spec"]
    assert scheduler["serviceAccountName"] == "controllers"
    assert scheduler["automountServiceAccountToken"] is False
    assert not {"serviceAccount", "shareProcessNamespace"} & scheduler.keys()
    assert scheduler["priorityClassName"] == "low"


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (each for each in pod["containers"] if each["name"] == name)
    return found


def mounted(pod: dict[str, Any], name: str) -> set[str]:
    return {mount["name"] for mount in container(pod, name)["volumeMounts"]}


def test_all_that_is_made_beside_it_belongs_to_the_cluster() -> None:
    cluster = made()
    assert cluster["spec"]["worker"]["replicas"] == 3
    secret = tls_secret(cluster, "CERT", "KEY")
    parts = [
        secret,
        controller_secret(cluster, port_keys().files()),
        network_policy(cluster),
        *own_account(cluster, []).values(),
        last_resort(cluster, spec()),
    ]
    for part in parts:
        (owner,) = part["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("DaskCluster", "u-1")
        assert part["metadata"]["labels"]["jupyter-ddl/user"] == "me"
    kinds = [(part["kind"], part["metadata"]["name"]) for part in parts]
    assert len(set(kinds)) == len(kinds)
    assert base64.b64decode(secret["data"]["tls.key"]) == b"KEY"
    assert any(
        volume.get("secret", {}).get("secretName") == secret["metadata"]["name"]
        for volume in worker(spec())["volumes"]
    )


def test_only_pods_of_a_cluster_reach_its_workers() -> None:
    policy = network_policy(made())["spec"]
    of_cluster = {"dask.org/cluster-name": "kube-abc"}
    (only,) = policy["ingress"]
    assert only == {"from": [{"podSelector": {"matchLabels": of_cluster}}]}
    workers = {**of_cluster, "dask.org/component": "worker"}
    assert policy["podSelector"] == {"matchLabels": workers}, "the scheduler's is for the site"


def test_the_scheduler_sees_neither_the_controllers_files_nor_its_token_nor_its_keys() -> None:
    pod = made()["spec"]["scheduler"]["spec"]
    assert pod["serviceAccountName"] == "controllers"
    assert mounted(pod, "scheduler") & mounted(pod, "controller") == {"tls"}
    by_name = {volume["name"]: volume for volume in pod["volumes"]}
    assert {volume["name"] for volume in worker(spec())["volumes"]} == {"scratch", "shm", "tls"}
    assert "account" in mounted(pod, "controller")
    items = {each["key"] for each in by_name["controller-keys"]["secret"]["items"]}
    assert items == {"spec.json", "server.crt", "server.key", "client.crt"}, "no client's key"
    for each in container(pod, "scheduler")["env"]:
        assert not each["name"].startswith("JUPYTER_DDL_DASK")


@pytest.mark.parametrize(
    ("home", "claim", "folder"),
    [
        (None, None, "/var/lib/jupyter-ddl/jupyter_ddl"),
        # Two users may have one claim, and clusters of one name: neither resumes the other's runs.
        ("pvc:runs", "runs", "/var/lib/jupyter-ddl/jupyter_ddl/me"),
        ("pvc:runs:ann/vision/", "runs", "/var/lib/jupyter-ddl/ann/vision"),
        ("pvc", "jupyter-ddl-me", "/var/lib/jupyter-ddl/jupyter_ddl/me"),
    ],
)
def test_runs_lie_in_the_pod_or_on_a_claim(
    home: str | None, claim: str | None, folder: str
) -> None:
    pod = made(home=home)["spec"]["scheduler"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "home")
    found = volume.get("persistentVolumeClaim", {}).get("claimName")
    assert found == claim
    assert ("emptyDir" in volume) == (claim is None)
    variables = {each["name"]: each.get("value") for each in container(pod, "controller")["env"]}
    assert variables["JUPYTER_DDL_HOME"] == folder


def test_a_controller_has_the_settings_of_its_notebook_that_mean_something_there() -> None:
    environ = {"JUPYTER_DDL_LOG_BYTES": "1MB", "JUPYTER_DDL_HOME": "/ann", "SECRET": "x"}
    assert passed_on(environ) == {"JUPYTER_DDL_LOG_BYTES": "1MB"}
    pod = scheduler_pod(spec(), "kube-abc", environ=passed_on(environ))
    variables = {each["name"]: each.get("value") for each in container(pod, "controller")["env"]}
    assert variables["JUPYTER_DDL_LOG_BYTES"] == "1MB"
    assert "JUPYTER_DDL_LOG_BYTES" not in {e["name"] for e in container(pod, "scheduler")["env"]}


def test_kubernetes_ends_what_nobody_else_can_after_its_time() -> None:
    job = last_resort(made(), spec())["spec"]
    assert job["parallelism"] == 0, "it never has a pod"
    assert job["ttlSecondsAfterFinished"] == 0
    assert spec().max_age_s < job["activeDeadlineSeconds"] <= spec().max_age_s + 3600
    assert violations({**job["template"]["spec"], "volumes": []}) == []
