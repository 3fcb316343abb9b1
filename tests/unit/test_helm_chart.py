"""The Helm chart: what it makes of values, and that it agrees with the package it is for."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import make_chart
import msgspec
import pytest
import yaml

import jupyter_ddl
from jupyter_ddl.backends.kubernetes import manifest, names
from jupyter_ddl.backends.kubernetes.api import NAMESPACE_VARIABLE
from jupyter_ddl.backends.kubernetes.doctor import check_options, rbac_text
from jupyter_ddl.backends.kubernetes.hardening import container_security
from jupyter_ddl.backends.kubernetes.home_claim import claim_of
from jupyter_ddl.backends.kubernetes.names import SERVICE_ACCOUNT
from jupyter_ddl.backends.kubernetes.settings import HOME_VARIABLE, KubeSettings, kube_settings
from jupyter_ddl.backends.kubernetes.spot import SPOT_VARIABLE, SpotPool, read_pool
from jupyter_ddl.client.prices import PRICES_VARIABLE, read_prices
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.prices import Prices, Rates
from tests.helm import CHART, HELM, MISSING, helm, rendered

DOCS = CHART.parents[2] / "docs"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
SNIPPET = CHART / "files" / "zero-to-jupyterhub.yaml"
RELEASE = "hub"
"""The namespace of the installations."""
ACCOUNT = "jupyter-ddl-notebook"

Json = dict[str, Any]

needs_helm = pytest.mark.skipif(not HELM, reason=MISSING)
case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)


def values_of(name: str = "") -> Json:
    path = CHART / "ci" / f"{name}-values.yaml" if name else CHART / "values.yaml"
    return yaml.safe_load(path.read_text()) or {}


def schema() -> Json:
    found: Json = json.loads((CHART / "values.schema.json").read_text())
    return found


@cache
def objects(name: str) -> tuple[Json, ...]:
    """Of an installation with these values, without the operator's."""
    found = rendered(CHART / "ci" / f"{name}-values.yaml", RELEASE)
    return tuple(
        each for each in found if each["metadata"].get("labels", {}).get("helm.sh/chart") == _OURS
    )


_OURS = f"jupyter-ddl-{jupyter_ddl.__version__}"


def only(name: str, kind: str, namespace: str = "", called: str = "") -> Json:
    (found,) = (
        each
        for each in objects(name)
        if each["kind"] == kind
        and namespace in ("", each["metadata"].get("namespace"))
        and called in ("", each["metadata"]["name"])
    )
    return found


# -- without helm ------------------------------------------------------------------------------


def test_the_rights_are_those_that_the_package_prints() -> None:
    assert make_chart.RBAC.read_text() == make_chart.printed_rbac(), "`make format` writes them"


def test_the_operators_chart_is_the_one_of_its_package() -> None:
    vendored = yaml.safe_load((make_chart.OPERATOR / "Chart.yaml").read_text())
    try:
        version = make_chart.operator_version()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("dask-kubernetes is not installed")
    if version != vendored["version"]:
        pytest.skip(f"dask-kubernetes {version} is installed, not {vendored['version']}")
    kept = {
        path.relative_to(make_chart.OPERATOR).as_posix(): path.read_text()
        for path in make_chart.OPERATOR.rglob("*")
        if path.is_file()
    }
    assert kept == make_chart.operator_files(), "`python tools/make_chart.py --operator` renews it"


def test_versions_of_the_chart_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == jupyter_ddl.__version__
    (operator,) = chart["dependencies"]
    vendored = yaml.safe_load((make_chart.OPERATOR / "Chart.yaml").read_text())
    assert (operator["name"], operator["version"]) == (vendored["name"], vendored["version"])
    image = yaml.safe_load((make_chart.OPERATOR / "values.yaml").read_text())["image"]
    assert image["tag"] == vendored["version"]


def test_the_licence_of_the_operators_chart_lies_with_it() -> None:
    assert "BSD 3-Clause" in (make_chart.OPERATOR / "LICENSE").read_text()


def test_every_value_is_described_and_every_description_has_its_value() -> None:
    _compare(values_of(), schema())
    for path in [CHART / "values.yaml", *CASES]:
        jsonschema.validate(yaml.safe_load(path.read_text()) or {}, schema())


def _compare(values: Json, described: Json, where: str = "") -> None:
    known = described.get("properties")
    if described.get("additionalProperties") is not False or not values:
        return
    assert sorted(values) == sorted({*known} - {"global"}), where
    for name, value in values.items():
        if isinstance(value, dict):
            _compare(value, known[name], f"{where}.{name}")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"namespace": ["compute"]}, "namespace"),
        ({"namespaces": "compute"}, "compute"),
        ({"namespaces": ["Compute"]}, "Compute"),
        ({"users": {"serviceaccount": {}}}, "serviceaccount"),
        ({"prices": {"hour": {"cpu": 1}}}, "currency"),
        ({"prices": {"currency": "EUR", "hour": {"cpus": 1}}}, "cpus"),
        ({"prices": {"currency": "EUR", "hour": {"cpu": -1}}}, "-1"),
        ({"prices": {"currency": "EUR", "nodes": {"spot": {"cpu": 1}}}}, "spot"),
        ({"spot": {"tolerations": ["a"]}}, "node_selector"),
        ({"spot": {"node_selector": {}}}, "{}"),
        ({"spot": {"node_selector": {"a": True}}}, "True"),
        ({"home": "runs"}, "runs"),
        ({"home": "pvc:Runs"}, "pvc:Runs"),
        ({"quota": {"requests.cpu": "many"}}, "many"),
        ({"limits": [{"type": "Container", "maximum": {}}]}, "maximum"),
        ({"claims": [{"name": "data"}]}, "storage"),
        ({"claims": [{"name": "data", "storage": "100 GB"}]}, "100 GB"),
        ({"priorityClasses": [{"name": "low"}]}, "value"),
        ({"podSecurity": "strict"}, "strict"),
        ({"operator": {"enabled": "no"}}, "no"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(values: Json, named: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=re.escape(named)):
        jsonschema.validate(values, schema())


def test_the_schema_knows_prices_and_pools_as_the_package_does() -> None:
    described = schema()
    assert {*described["definitions"]["rates"]["properties"]} == {*Rates.__struct_fields__}
    assert {*described["properties"]["prices"]["properties"]} == {*Prices.__struct_fields__}
    assert {*described["properties"]["spot"]["properties"]} == {*SpotPool.__struct_fields__}


def test_the_hub_gives_notebooks_the_account_and_variables_of_the_package() -> None:
    told = yaml.safe_load(SNIPPET.read_text())["singleuser"]
    assert told["serviceAccountName"] == ACCOUNT == values_of()["users"]["serviceAccount"]["name"]
    variables = told["extraEnv"]
    assert {*variables} == {
        NAMESPACE_VARIABLE,
        PRICES_VARIABLE,
        SPOT_VARIABLE,
        HOME_VARIABLE,
    }
    for name, variable in variables.items():
        assert variable["name"] == variable["valueFrom"]["configMapKeyRef"]["key"] == name
        assert variable["valueFrom"]["configMapKeyRef"]["optional"] is True
    (volume,) = told["storage"]["extraVolumes"]
    (mount,) = told["storage"]["extraVolumeMounts"]
    assert volume["name"] == mount["name"]
    schedulers = told["networkPolicy"]["egress"][0]
    ports = [each["port"] for each in schedulers["ports"]]
    assert ports == [manifest.CONTROLLER_PORT, manifest.COMM_PORT]
    asked = schedulers["to"][0]["podSelector"]["matchExpressions"]
    assert asked[0]["key"] == names.DASK_LABEL
    profiles = told["profileList"]
    assert [each["display_name"] for each in profiles if each.get("default")] == ["Small notebook"]


# -- with helm ---------------------------------------------------------------------------------


@needs_helm
@case
def test_helm_finds_nothing_to_complain_about(values: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "-f", str(values))


@needs_helm
@case
def test_every_object_has_a_name_of_its_own_in_a_namespace_that_was_named(values: Path) -> None:
    found = objects(values.stem.removesuffix("-values"))
    told = yaml.safe_load(values.read_text()) or {}
    users = told.get("users", {}).get("namespaces", [])
    known = {"", RELEASE, *told.get("namespaces", []), *users}
    keys = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in found
    ]
    assert len({*keys}) == len(keys) > 0
    for kind, namespace, name in keys:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name), (kind, name)
        assert namespace in known, (kind, name)


@needs_helm
def test_everything_that_can_be_turned_on_is_made() -> None:
    rights = [_called(each) for each in printed("compute")]
    assert "Role compute/jupyter-ddl" in rights
    assert sorted(map(_called, objects("everything"))) == sorted(
        [
            *rights,
            "ClusterRole /jupyter-ddl-nodes",
            "ClusterRoleBinding /jupyter-ddl-nodes",
            "ConfigMap hub/jupyter-ddl",
            "DaemonSet hub/jupyter-ddl-images",
            "LimitRange compute/jupyter-ddl",
            "Namespace /compute",
            "NetworkPolicy compute/jupyter-ddl-controllers",
            "NetworkPolicy compute/jupyter-ddl-pods",
            "NetworkPolicy compute/jupyter-ddl-schedulers",
            "PersistentVolumeClaim compute/datasets",
            "PersistentVolumeClaim compute/runs",
            "PriorityClass /jupyter-ddl-high",
            "PriorityClass /jupyter-ddl-low",
            "ResourceQuota compute/jupyter-ddl",
            "RoleBinding compute/jupyter-ddl",
            "ServiceAccount hub/jupyter-ddl-notebook",
            "StorageClass /jupyter-ddl",
        ]
    )


def _called(each: Json) -> str:
    return f"{each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}"


@needs_helm
def test_the_page_for_hubs_names_what_the_chart_makes() -> None:
    page = (DOCS / "hub.md").read_text()
    kinds = {each["kind"] for each in objects("everything")} - {"ClusterRoleBinding", "RoleBinding"}
    plain = {"Role": "Roles", "Namespace": "Namespaces", "ServiceAccount": "service account"}
    plain["NetworkPolicy"] = "NetworkPolicies"
    assert [kind for kind in sorted(kinds) if plain.get(kind, kind) not in page] == []
    known = values_of()
    named = [pair for pair in re.findall(r"`(\w+)\.(\w+)`", page) if pair[1] != "yaml"]
    assert len(named) > 5
    assert [pair for pair in named if pair[1] not in known.get(pair[0], {})] == []


@needs_helm
@case
def test_every_namespace_has_the_rights_that_the_package_prints(values: Path) -> None:
    made = []
    for each in objects(values.stem.removesuffix("-values")):
        metadata = {key: value for key, value in each["metadata"].items() if key != "labels"}
        made.append({**each, "metadata": metadata})
    namespaces = (yaml.safe_load(values.read_text()) or {}).get("namespaces", [RELEASE])
    for namespace in namespaces:
        assert [each for each in printed(namespace) if each not in made] == []
    roles = [each for each in printed(RELEASE) if each["kind"] == "Role"]
    assert len([each for each in made if each["kind"] == "Role"]) == len(roles) * len(namespaces)


def printed(namespace: str) -> list[Json]:
    """The objects of `%cluster doctor kube --print-rbac`."""
    return [each for each in yaml.safe_load_all(asyncio.run(rbac_text(namespace))) if each]


@needs_helm
@pytest.mark.parametrize(
    ("name", "namespace", "users"),
    [
        ("everything", "compute", [("hub", ACCOUNT), "data-science"]),
        ("namespace-per-user", "user-ann", [("user-ann", ACCOUNT)]),
        ("namespace-per-user", "user-bob", [("user-bob", ACCOUNT)]),
        ("group", "team-b", ["team"]),
        ("one-namespace", RELEASE, [(RELEASE, ACCOUNT)]),
    ],
)
def test_who_may_start_clusters(name: str, namespace: str, users: list[Any]) -> None:
    binding = only(name, "RoleBinding", namespace, "jupyter-ddl")
    role = only(name, "Role", namespace, "jupyter-ddl")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    bound = [
        (each["namespace"], each["name"]) if each["kind"] == "ServiceAccount" else each["name"]
        for each in binding["subjects"]
    ]
    assert bound == users


@needs_helm
def test_nobody_is_bound_where_nobody_was_named() -> None:
    bound = {_called(each) for each in objects("own-bindings") if each["kind"] == "RoleBinding"}
    assert "RoleBinding user-ann/jupyter-ddl" in bound
    assert "RoleBinding shared/jupyter-ddl" not in bound
    assert _notebooks(only("own-bindings", "ClusterRoleBinding")) == ["user-ann"]


def _notebooks(binding: Json) -> list[str]:
    """Where the notebooks are that are bound, beside controllers."""
    return [each["namespace"] for each in binding["subjects"] if each["name"] != SERVICE_ACCOUNT]


@needs_helm
def test_only_who_may_start_clusters_and_controllers_read_nodes() -> None:
    binding = only("namespace-per-user", "ClusterRoleBinding")
    assert _notebooks(binding) == ["user-ann", "user-bob"]
    controllers = [each for each in binding["subjects"] if each["name"] == SERVICE_ACCOUNT]
    assert [each["namespace"] for each in controllers] == ["user-ann", "user-bob"]
    assert only("namespace-per-user", "ClusterRole")["rules"][0]["verbs"] == ["get"]


@needs_helm
def test_what_notebooks_are_told_is_what_the_package_reads(tmp_path: Path) -> None:
    told = only("everything", "ConfigMap", "hub")["data"]
    snippet = yaml.safe_load(SNIPPET.read_text())["singleuser"]
    assert {*snippet["extraEnv"]} == {name for name in told if name.startswith("JUPYTER_DDL_")}
    assert told[NAMESPACE_VARIABLE] == "compute"
    settings = msgspec.to_builtins(KubeSettings("team/image:1", home=told[HOME_VARIABLE]))
    spec = ClusterSpec(name="kube", backend="kube", settings=settings)
    check_options(spec)
    (claim, _) = claim_of(kube_settings(spec), "ann")
    assert only("everything", "PersistentVolumeClaim", "compute", claim)
    folder = snippet["storage"]["extraVolumeMounts"][0]["mountPath"]
    for variable in (PRICES_VARIABLE, SPOT_VARIABLE):
        name = Path(told[variable])
        assert str(name.parent) == folder
        (tmp_path / name.name).write_text(told[name.name])
    prices = read_prices(tmp_path / "prices.json")
    assert (prices.currency, prices.hour.gpus) == ("EUR", {"A100": 2.9, "H100": 4.0})
    assert prices.nodes["cloud.google.com/gke-spot=true"].cpu == 0.012
    pool = read_pool(tmp_path / "spot.json")
    assert pool == SpotPool(
        {"cloud.google.com/gke-spot": "true"},
        ("cloud.google.com/gke-spot=true:NoSchedule",),
        ("example.org/leaves-soon",),
    )


@needs_helm
def test_notebooks_are_told_nothing_where_nothing_is_to_be_told() -> None:
    assert not only("one-namespace", "ConfigMap")["data"]
    assert not only("namespace-per-user", "ConfigMap", "user-ann")["data"]


@needs_helm
def test_pods_that_pull_images_give_up_what_all_pods_of_ours_do() -> None:
    pod = only("everything", "DaemonSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    containers = [*pod["initContainers"], *pod["containers"]]
    images = values_of("everything")["prePuller"]["images"]
    assert [each["image"] for each in containers] == images
    security = container_security()["securityContext"]
    assert [each["securityContext"] for each in containers] == [security, security]
    # A node that is full has room for them all the same.
    assert [{*each["resources"]["requests"].values()} for each in containers] == [{"0"}, {"0"}]


@needs_helm
def test_policies_close_the_ports_of_schedulers_and_know_pods_as_the_operator_labels_them() -> None:
    schedulers = only("everything", "NetworkPolicy", "compute", "jupyter-ddl-schedulers")["spec"]
    ports = [[port["port"] for port in rule["ports"]] for rule in schedulers["ingress"]]
    reached = [manifest.CONTROLLER_PORT, manifest.COMM_PORT]
    assert ports == [[manifest.COMM_PORT], reached, [manifest.HTTP_PORT]]
    pods = only("everything", "NetworkPolicy", "compute", "jupyter-ddl-pods")["spec"]
    labels = {names.DASK_LABEL: "one", "dask.org/component": "scheduler"}
    assert _selects(schedulers["podSelector"], labels)
    assert not _selects(schedulers["podSelector"], labels | {"dask.org/component": "worker"})
    assert _selects(pods["podSelector"], labels)
    assert not _selects(pods["podSelector"], {"app": "hub"})
    operators = schedulers["ingress"][2]["from"][0]["podSelector"]
    (deployment,) = (
        each
        for each in rendered(CHART / "ci" / "everything-values.yaml", RELEASE)
        if each["kind"] == "Deployment"
    )
    template = deployment["spec"]["template"]
    assert _selects(operators, template["metadata"]["labels"])
    assert template["spec"]["containers"][0]["image"].endswith(
        f":{yaml.safe_load((make_chart.OPERATOR / 'Chart.yaml').read_text())['version']}"
    )


def _selects(selector: Json, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    expressions = selector.get("matchExpressions", [])
    assert {each["operator"] for each in expressions} <= {"Exists"}
    return wanted and all(each["key"] in labels for each in expressions)


@needs_helm
def test_amounts_are_texts_whatever_they_are_in_the_values() -> None:
    """Old API servers refuse a number in their place when helm has them merge an object."""
    quota = only("everything", "ResourceQuota")["spec"]["hard"]
    assert quota == {
        "pods": "40",
        "requests.cpu": "64",
        "requests.memory": "256Gi",
        "requests.nvidia.com/gpu": "4",
    }
    (limit,) = only("everything", "LimitRange")["spec"]["limits"]
    assert limit == {
        "type": "Container",
        "max": {"cpu": "16", "memory": "64Gi"},
        "defaultRequest": {"cpu": "0.1"},
    }


@needs_helm
def test_a_namespace_of_the_chart_is_kept_and_fenced() -> None:
    namespace = only("everything", "Namespace")["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["annotations"]["helm.sh/resource-policy"] == "keep"
    for each in objects("everything"):
        if each["kind"] == "PersistentVolumeClaim":
            assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
