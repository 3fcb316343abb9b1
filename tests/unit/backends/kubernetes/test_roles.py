"""What is asked for in a namespace: by notebooks, and by the controllers in pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from jupyter_ddl.backends.kubernetes.access import (
    CONTROLLER_NEEDS,
    NEEDS,
    missing_access,
    role_manifest,
    rules_for,
)
from jupyter_ddl.backends.kubernetes.doctor import check_access, check_account
from jupyter_ddl.errors import BackendError

Json = dict[str, Any]


def granted(rules: list[Json]) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def asked(needs: Any) -> set[tuple[str, str, str]]:
    return {(need.verb, need.group, need.full_resource) for need in needs}


def test_the_printed_roles_have_every_need_with_its_purpose_and_nothing_else() -> None:
    text = role_manifest("space")
    role, account, binding, of_controllers = yaml.safe_load_all(text)
    assert granted(role["rules"]) == asked(NEEDS)
    assert granted(of_controllers["rules"]) == asked(CONTROLLER_NEEDS)
    assert all(need.purpose in text for need in (*NEEDS, *CONTROLLER_NEEDS))
    assert {each["metadata"]["namespace"] for each in (role, account, binding, of_controllers)} == {
        "space"
    }
    assert binding["roleRef"]["name"] == of_controllers["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]


def test_nobody_may_make_pods_and_a_controller_reads_no_secret() -> None:
    forbidden = {("create", "", "pods"), ("create", "", "pods/exec")}
    assert not forbidden & (asked(NEEDS) | asked(CONTROLLER_NEEDS))
    assert not [need for need in CONTROLLER_NEEDS if need.resource == "secrets"]
    assert not [need for need in CONTROLLER_NEEDS if need.verb == "create"]


def test_a_controller_of_its_own_may_touch_its_own_cluster_alone() -> None:
    rules = rules_for("kube-1")
    assert granted(rules) == asked(CONTROLLER_NEEDS)
    named = {rule["resources"][0]: rule.get("resourceNames") for rule in rules}
    assert named["daskclusters"] == ["kube-1"]
    assert named["daskworkergroups"] == ["kube-1-default"]


class Api:
    """Allows what is listed, and has some service accounts."""

    namespace = "space"

    def __init__(self, *allowed: str, accounts: tuple[str, ...] = ()) -> None:
        self._allowed = allowed
        self._accounts = accounts
        self.names: dict[str, str] = {}

    async def may(
        self, verb: str, group: str, resource: str, subresource: str = "", *, name: str = ""
    ) -> bool:
        self.names[resource] = name
        return f"{verb} {resource}" in self._allowed

    async def get(self, resource: str, name: str) -> Json:
        if resource != "serviceaccounts" or name not in self._accounts:
            raise BackendError("there is none", status=404)
        return {}


def test_a_controller_asks_about_its_own_objects() -> None:
    api: Any = Api()
    missing = asyncio.run(missing_access(api, CONTROLLER_NEEDS, "kube-1"))
    assert missing == list(CONTROLLER_NEEDS)
    assert api.names == {
        "daskclusters": "kube-1", "daskworkergroups": "kube-1-default", "pods": "", "events": "",
    }  # fmt: skip
    with pytest.raises(BackendError, match=r"may not get daskclusters\.kubernetes"):
        asyncio.run(check_access(api, CONTROLLER_NEEDS, "kube-1"))


def test_the_account_of_controllers_is_the_one_asked_for_the_usual_one_or_a_new_one() -> None:
    may_make = ("create serviceaccounts", "create roles", "create rolebindings")
    usual = ("jupyter-ddl-controller",)
    for api, wanted, account in (
        (Api(accounts=("mine",)), "mine", "mine"),
        (Api(accounts=usual), None, usual[0]),
        (Api(*may_make), None, ""),
    ):
        assert asyncio.run(check_account(api, wanted)) == account  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("api", "wanted", "expected"),
    [
        (Api(), "mine", "--service-account mine: namespace space has no such account"),
        (Api("create roles"), None, "may not create serviceaccounts, rolebindings; have an admin"),
    ],
)
def test_without_an_account_a_start_is_refused_with_what_to_do(
    api: Any, wanted: str | None, expected: str
) -> None:
    with pytest.raises(BackendError) as caught:
        asyncio.run(check_account(api, wanted))
    assert expected in caught.value.message
