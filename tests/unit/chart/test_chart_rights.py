"""What the chart lets the operator and people do, rule by rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.chart import render
from kit.chart_objects import VARIANTS, operator

LEDGER = "rto-resumable-training-operator-nodes"


def rules_of(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in objects:
        if each["kind"] in {"Role", "ClusterRole"}:
            for rule in each["rules"]:
                yield f"{each['kind']} {each['metadata'].get('namespace', '*')}", rule


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_role_has_wildcards_secrets_or_other_ways_to_more_power(variant: str) -> None:
    for where, rule in rules_of(render(values=VARIANTS[variant])):
        for field in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[field], where
        forbidden = {
            "secrets", "serviceaccounts", "serviceaccounts/token", "pods/exec",
            "pods/attach", "roles", "clusterroles", "rolebindings", "clusterrolebindings",
            "nodes/proxy", "customresourcedefinitions",
        }  # fmt: skip
        assert not forbidden & set(rule["resources"]), where
        if "configmaps" in rule["resources"]:
            (name,) = rule["resourceNames"]
            assert name.endswith("-nodes"), where
            assert (where, rule["verbs"]) == ("Role rtj-system", ["get", "update"])
        if "leases" in rule["resources"] and where != "Role kube-node-lease":
            assert rule["resourceNames"] == [rule["resourceNames"][0]], where
            assert (where, rule["verbs"]) == ("Role rtj-system", ["get", "update"])
        if "namespaces" in rule["resources"]:
            assert (rule["resourceNames"], rule["verbs"]) == (["kube-system"], ["get"]), where
        assert not {"impersonate", "bind", "escalate"} & set(rule["verbs"]), where


def granted(objects: list[dict[str, Any]], *, name: str) -> set[tuple[str, str, str, str]]:
    """(namespace or `*`, group, resource, verb) of the roles that are bound to the operator."""
    out = set()
    for each in objects:
        if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == name:
            where = each["metadata"].get("namespace", "*")
            for rule in each["rules"]:
                out |= {
                    (where, group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return out


def expand(where: str, group: str, resource: str, verbs: str) -> set[tuple[str, str, str, str]]:
    return {(where, group, resource, verb) for verb in verbs.split()}


ALWAYS = (
    expand("*", "", "nodes", "get list watch")
    | expand("*", "", "namespaces", "get")
    | expand("kube-node-lease", "coordination.k8s.io", "leases", "list")
)


def in_namespace(where: str) -> set[tuple[str, str, str, str]]:
    group = "resumable-training.dev"
    return (
        expand(where, group, "resumabletrainingjobs", "get list watch delete")
        | expand(where, group, "resumabletrainingjobs/status", "update")
        | expand(where, group, "resumabletrainingjobs/finalizers", "update")
        | expand(where, "", "pods", "get list watch create patch delete")
        | expand(where, "events.k8s.io", "events", "create patch")
        | expand(where, "", "events", "list")
        | expand(where, "scheduling.volcano.sh", "podgroups", "create patch")
        | expand(where, "scheduling.x-k8s.io", "podgroups", "create patch")
        | expand(where, "scheduling.k8s.io", "podgroups", "create patch")
        | expand(where, "kueue.x-k8s.io", "workloads", "get")
    )


def test_operator_may_do_exactly_this() -> None:
    name = "rto-resumable-training-operator"
    assert granted(render(), name=name) == ALWAYS | in_namespace("*")


def test_with_a_list_of_namespaces_the_same_rules_hold_there_only() -> None:
    objects = render(values=VARIANTS["namespaces"])
    name = "rto-resumable-training-operator"
    assert granted(objects, name=name) == (ALWAYS | in_namespace("team-a") | in_namespace("team-b"))
    bound = {
        each["metadata"]["namespace"]
        for each in objects
        if each["kind"] == "RoleBinding"
        and each["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name
        }
        and each["subjects"] == [
            {"kind": "ServiceAccount", "name": name, "namespace": "rtj-system"}
        ]
    }  # fmt: skip
    assert bound == {"team-a", "team-b", "kube-node-lease"}


def test_without_nodes_nothing_is_asked_for_outside_of_the_namespaces() -> None:
    objects = render(values=VARIANTS["no nodes"])
    assert granted(objects, name="rto-resumable-training-operator") == in_namespace("team-a")
    bound = [each["kind"] for each in objects if each["kind"].endswith("Binding")]
    assert set(bound) == {"RoleBinding"}
    spaces = {e["metadata"].get("namespace") for e in objects if e["kind"] == "Role"}
    assert spaces == {"team-a", "rtj-system"}


def test_cluster_roles_of_people_cover_jobs() -> None:
    objects = render()
    by_name = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ClusterRole"}
    view = by_name["rto-resumable-training-operator-view"]
    edit = by_name["rto-resumable-training-operator-edit"]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {label for label in view["metadata"]["labels"] if prefix in label} == {f"{prefix}view"}
    assert {label for label in edit["metadata"]["labels"] if prefix in label} == {
        f"{prefix}edit",
        f"{prefix}admin",
    }
    assert view["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert "create" in edit["rules"][0]["verbs"]


def test_the_operator_may_keep_its_node_ledger_and_its_lease_and_no_other() -> None:
    objects = render()
    assert granted(objects, name=LEDGER) == (
        expand("rtj-system", "", "configmaps", "get update")
        | expand("rtj-system", "coordination.k8s.io", "leases", "get update")
    )
    (bound,) = [
        each
        for each in objects
        if each["kind"] == "RoleBinding" and each["metadata"]["name"] == LEDGER
    ]
    assert bound["roleRef"]["name"] == LEDGER
    assert bound["subjects"][0]["name"] == "rto-resumable-training-operator"
    assert bound["metadata"]["namespace"] == "rtj-system"


def test_an_upgrade_leaves_what_was_counted_against_nodes() -> None:
    """Helm touches only what the manifest names."""
    (kept,) = [
        each
        for each in render()
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == LEDGER
    ]
    assert "data" not in kept
    environment = {e["name"]: e.get("value") for e in operator(render())["env"]}
    assert environment["RTJ_NODE_LEDGER"] == LEDGER
