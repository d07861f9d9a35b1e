"""What each queue and gang scheduler finds on a pod, and the PodGroup beside it."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from kit.specs import OWNER, SMALLEST, a_pod, a_spec
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core import gangs
from rtj_operator.core.avoid import keep_off
from rtj_operator.core.pods import refusal_of, template_hash, warnings_of

VOLCANO = {"gang": "volcano"}
KUEUE = {"gang": "kueue", "queue": "team-a"}


def member(spec: JobSpec, *, since: int | None = None, rank: int = 0) -> dict[str, Any]:
    return gangs.joined(a_pod(spec, rank=rank), spec, owner=OWNER, since=since)


def test_without_a_wish_a_pod_is_as_it_was() -> None:
    assert member(SMALLEST) == a_pod(SMALLEST)
    assert gangs.desired_group(SMALLEST, owner=OWNER) is None
    assert template_hash(a_spec(scheduling={"gang": "none"})) == template_hash(a_spec())


def test_a_kueue_pod_is_one_of_a_plain_pod_group() -> None:
    spec = a_spec(replicas=4, scheduling={**KUEUE, "priorityClass": "high"})
    pod = member(spec, since=7, rank=3)
    kubernetes_validate.validate(pod, "1.34", strict=True)
    labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team-a"
    assert labels["kueue.x-k8s.io/pod-group-name"] == "gpt-g7-0a1b"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    assert notes["kueue.x-k8s.io/pod-group-total-count"] == "4"
    assert notes["kueue.x-k8s.io/pod-group-serving"] == "true"
    assert labels[notes["kueue.x-k8s.io/pod-group-pod-index-label"]] == "3"
    assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    assert gangs.desired_group(spec, owner=OWNER) is None


def test_nodes_that_a_replaced_pod_keeps_off_make_no_other_role_of_it() -> None:
    spec = a_spec(scheduling=KUEUE)
    roles = {
        gangs.joined(pod, spec, owner=OWNER, since=1)["metadata"]["annotations"][
            "kueue.x-k8s.io/role-hash"
        ]
        for pod in (a_pod(spec), keep_off(a_pod(spec, rank=1), ("node-9",)))
    }
    assert len(roles) == 1


def test_gates_and_topology_hints_of_the_template_stay() -> None:
    hint = {"kueue.x-k8s.io/podset-required-topology": "cloud.com/rack"}
    spec = a_spec(
        pod={"schedulingGates": [{"name": "my/gate"}, {"name": "kueue.x-k8s.io/admission"}]},
        scheduling=KUEUE,
    )
    body = {**spec.template, "metadata": {"annotations": hint, "labels": {"mine": "1"}}}
    pod = member(spec.model_copy(update={"template": body}))
    names = [gate["name"] for gate in pod["spec"]["schedulingGates"]]
    assert names == ["my/gate", "kueue.x-k8s.io/admission"]
    assert hint.items() <= pod["metadata"]["annotations"].items()
    assert pod["metadata"]["labels"]["mine"] == "1"


def test_volcano_gets_a_group_with_queue_priority_and_topology() -> None:
    topology = {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}
    spec = a_spec(
        replicas=8,
        pod={"priorityClassName": "pod-class"},
        scheduling={"gang": "volcano", "queue": "team-a", "podGroup": topology},
    )
    pod, group = member(spec), gangs.desired_group(spec, owner=OWNER)
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "gpt-gang-0a1b"
    assert group is not None
    assert group["metadata"]["name"] == "gpt-gang-0a1b"
    assert group["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid
    assert group["spec"] == {
        "minMember": 8,
        "queue": "team-a",
        "priorityClassName": "pod-class",
        **topology,
    }
    over = spec.scheduling.model_copy(update={"priority_class": "group-class"})
    found = gangs.desired_group(spec.model_copy(update={"scheduling": over}), owner=OWNER)
    assert found is not None
    assert found["spec"]["priorityClassName"] == "group-class"


def test_scheduler_plugins_and_the_native_gang() -> None:
    plugins = a_spec(replicas=3, scheduling={"gang": "scheduler-plugins"})
    pod, group = member(plugins), gangs.desired_group(plugins, owner=OWNER)
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "gpt-gang-0a1b"
    assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    assert group is not None
    assert group["spec"] == {"minMember": 3}
    native = a_spec(replicas=3, scheduling={"gang": "native"})
    pod, group = member(native), gangs.desired_group(native, owner=OWNER)
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "gpt-gang-0a1b"}
    assert "schedulerName" not in pod["spec"]
    assert group is not None
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}


def test_a_native_group_has_the_priority_of_its_pods() -> None:
    """Where gangs preempt, the group's counts and not the pods': without it the gang is last."""
    pod = {"priorityClassName": "high"}
    ways = gangs.ways_to_apply(a_spec(pod=pod, scheduling={"gang": "native"}), owner=OWNER)
    tried = [(w["apiVersion"].rpartition("/")[2], w["spec"].get("priorityClassName")) for w in ways]
    assert tried == [
        ("v1", "high"),
        ("v1", None),
        ("v1beta1", "high"),
        ("v1beta1", None),
        ("v1alpha3", "high"),
        ("v1alpha3", None),
        ("v1alpha2", None),
    ]
    stated = {"priorityClassName": "gang", "disruptionMode": {"all": {}}}
    own = a_spec(pod=pod, scheduling={"gang": "native", "podGroup": stated})
    ways = gangs.ways_to_apply(own, owner=OWNER)
    assert len(ways) == len(gangs.GROUP_APIS["native"])
    assert all(stated.items() <= way["spec"].items() for way in ways)
    assert len(gangs.ways_to_apply(a_spec(scheduling={"gang": "native"}), owner=OWNER)) == 4
    assert len(gangs.ways_to_apply(a_spec(pod=pod, scheduling=VOLCANO), owner=OWNER)) == 1
    assert gangs.ways_to_apply(SMALLEST, owner=OWNER) == []


def test_a_group_that_cannot_be_changed_says_what_to_do() -> None:
    spec = a_spec(scheduling={"gang": "native"})
    said = "spec.priorityClassName: Invalid value: field is immutable"
    text = gangs.unavailable(spec, code=422, said=said)
    assert "delete the PodGroup" in text
    assert "Set spec.scheduling back" in text


def test_the_templates_own_scheduler_wins() -> None:
    spec = a_spec(pod={"schedulerName": "mine"}, scheduling={"gang": "volcano"})
    assert member(spec)["spec"]["schedulerName"] == "mine"


@pytest.mark.parametrize(
    ("gang", "field"),
    [
        ("volcano", "minMember"),
        ("volcano", "queue"),
        ("scheduler-plugins", "minMember"),
        ("native", "schedulingPolicy"),
    ],
)
def test_what_is_filled_in_may_not_be_stated(gang: str, field: str) -> None:
    spec = a_spec(scheduling={"gang": gang, "podGroup": {field: 1}})
    refusal = refusal_of(spec, owner=OWNER)
    assert refusal is not None
    assert refusal.reason == Reason.INVALID_SPEC
    assert f"spec.scheduling.podGroup.{field}" in refusal.message


def test_a_change_of_queue_is_a_change_of_the_template() -> None:
    hashes = {
        template_hash(a_spec(scheduling={"gang": "kueue", "queue": queue})) for queue in ("a", "b")
    }
    assert len(hashes | {template_hash(a_spec())}) == 3


def test_pods_that_would_queue_one_by_one_are_told_of() -> None:
    spec = a_spec()
    label = {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}
    alone = spec.model_copy(update={"template": {**spec.template, "metadata": label}})
    (warning,) = warnings_of(alone)
    assert warning.reason == Reason.QUEUED_ONE_BY_ONE
    assert "queue: team-a" in warning.message
    whole = alone.model_copy(update={"scheduling": a_spec(scheduling=KUEUE).scheduling})
    assert warnings_of(whole) == ()


@pytest.mark.parametrize(
    ("gang", "code", "remedy"),
    [
        ("volcano", 404, "install Volcano"),
        ("scheduler-plugins", 404, "scheduler of scheduler-plugins"),
        ("native", 404, "GenericWorkload"),
        ("volcano", 403, "upgrade the chart"),
        ("volcano", 422, "Correct spec.scheduling.podGroup"),
    ],
)
def test_a_group_that_cannot_be_made_says_what_to_do(gang: str, code: int, remedy: str) -> None:
    text = gangs.unavailable(a_spec(scheduling={"gang": gang}), code=code, said="no")
    assert remedy in text
