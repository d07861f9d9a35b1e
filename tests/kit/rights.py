"""Each permission of the operator and the code that needs it: one row for each verb.

The chart's rules must be exactly these rows, and each is tried with an account that lacks it alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rtj_api import contract
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.cluster import KubeCluster

LEDGER, LEASE, OWN = "ledger", "lease", "rtj-system"
GROUP = contract.GROUP
JOBS = contract.PLURAL


@dataclass(frozen=True, slots=True)
class Right:
    """`where`: `*`, or the namespace that a Role is in; `name`: the one object, or any."""

    verb: str
    group: str
    resource: str
    where: str = "*"
    name: str = ""

    def __str__(self) -> str:
        place = "" if self.where == "*" else f" in {self.where}"
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{place}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row's call is made: a namespace, and a job of it that is there."""

    namespace: str
    job_uid: str

    def nobody(self) -> JobKey:
        return JobKey(self.namespace, "nobody")


Call = Callable[[KubeCluster, Place], Awaitable[Any]]


def pod(place: Place, *, owned: bool = False) -> dict[str, Any]:
    owner = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "name": "owner",
        "uid": place.job_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta = {"namespace": place.namespace, "generateName": "right-"}
    return {
        "metadata": meta | ({"ownerReferences": [owner]} if owned else {}),
        "spec": {
            "nodeSelector": {"nowhere": "to-be-found"},
            "containers": [{"name": "trainer", "image": "none"}],
        },
    }


def event(place: Place) -> dict[str, Any]:
    regarding = {"kind": "Pod", "namespace": place.namespace, "name": "nobody"}
    return {
        "metadata": {"namespace": place.namespace, "generateName": "right-"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": contract.MANAGER,
        "reportingInstance": "rights",
        "action": "Reconcile",
        "reason": "Tried",
        "type": "Normal",
        "regarding": regarding,
    }


def pod_group(place: Place, *, api: str) -> dict[str, Any]:
    meta = {"namespace": place.namespace, "name": "right"}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 1}}


def listed(path: str, *, watch: bool = False) -> Call:
    """As kopf does it, with the session that it gets: first the list, then the watch."""

    async def call(cluster: KubeCluster, _: Place) -> None:
        said: list[str] = []
        host, session = cluster.watch_session(on_watch=lambda _, why: said.extend([why or ""]))
        query = "?watch=true&timeoutSeconds=1" if watch else "?limit=1"
        async with session, session.get(f"{host}{path}{query}") as response:
            await response.read()
        if said != [""]:
            raise PermissionError(said)

    return call


def named(name: str) -> dict[str, Any]:
    return {"namespace": OWN, "name": name}


def object_named(name: str, *, kind: str, api: str) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": named(name)}


async def put_ledger(c: KubeCluster, _: Place) -> None:
    await c.put_config_map(object_named(LEDGER, kind="ConfigMap", api="v1"))


async def put_lease(c: KubeCluster, _: Place) -> None:
    await c.put_lease(object_named(LEASE, kind="Lease", api="coordination.k8s.io/v1"))


def nobody(p: Place) -> dict[str, str]:
    return {"namespace": p.namespace, "name": "nobody"}


NO = {"uid": "00000000-0000-0000-0000-000000000000", "resource_version": "1"}
GANGS = {
    "scheduling.volcano.sh": "v1beta1",
    "scheduling.x-k8s.io": "v1alpha1",
    "scheduling.k8s.io": "v1alpha2",
}


def gang(group: str) -> dict[Right, Call]:
    """Server-side apply asks for patch, and for create where the object is not there yet."""

    async def call(c: KubeCluster, p: Place) -> None:
        await c.apply_group(pod_group(p, api=f"{group}/{GANGS[group]}"))

    return {Right(verb, group, "podgroups"): call for verb in ("create", "patch")}


NEEDS: Mapping[Right, Call] = {
    Right("get", GROUP, JOBS): lambda c, p: c.get_job(p.nobody()),
    Right("list", GROUP, JOBS): lambda c, _: c.list_jobs(),
    Right("watch", GROUP, JOBS): listed(f"/apis/{contract.API_VERSION}/{JOBS}", watch=True),
    Right("delete", GROUP, JOBS): lambda c, p: c.delete_job(key=p.nobody(), **NO),
    Right("update", GROUP, f"{JOBS}/status"): lambda c, p: c.put_status(
        key=p.nobody(), status={}, **NO
    ),
    # Where the API server enforces it: an owner that a pod keeps from going.
    Right("update", GROUP, f"{JOBS}/finalizers"): lambda c, p: c.create_pod(pod(p, owned=True)),
    Right("get", "", "pods"): lambda c, p: c.get_pod(**nobody(p)),
    Right("list", "", "pods"): lambda c, p: c.list_pods(p.nobody()),
    Right("watch", "", "pods"): listed("/api/v1/pods", watch=True),
    Right("create", "", "pods"): lambda c, p: c.create_pod(pod(p)),
    Right("patch", "", "pods"): lambda c, p: c.annotate_pod(
        **nobody(p), resource_version="1", annotations={}, labels={}
    ),
    Right("delete", "", "pods"): lambda c, p: c.delete_pod(**nobody(p), uid=NO["uid"]),
    Right("create", "events.k8s.io", "events"): lambda c, p: c.create_event(event(p)),
    Right("patch", "events.k8s.io", "events"): lambda c, p: c.patch_event(**nobody(p), patch={}),
    Right("list", "", "events"): lambda c, p: c.list_pod_warnings(
        namespace=p.namespace, uid=NO["uid"]
    ),
    **gang("scheduling.volcano.sh"),
    **gang("scheduling.x-k8s.io"),
    **gang("scheduling.k8s.io"),
    Right("get", "kueue.x-k8s.io", "workloads"): lambda c, p: c.get_workload(**nobody(p)),
    Right("get", "", "nodes"): lambda c, _: c.get_node("nobody"),
    Right("list", "", "nodes"): listed("/api/v1/nodes"),
    Right("watch", "", "nodes"): listed("/api/v1/nodes", watch=True),
    Right("get", "", "namespaces", name="kube-system"): lambda c, _: c.cluster_uid(),
    Right("list", "coordination.k8s.io", "leases", "kube-node-lease"): lambda c, _: c.list_leases(),
    Right("get", "", "configmaps", OWN, LEDGER): lambda c, _: c.get_config_map(**named(LEDGER)),
    Right("update", "", "configmaps", OWN, LEDGER): put_ledger,
    Right("get", "coordination.k8s.io", "leases", OWN, LEASE): lambda c, _: c.get_lease(
        **named(LEASE)
    ),
    Right("update", "coordination.k8s.io", "leases", OWN, LEASE): put_lease,
}


def granted(objects: list[dict[str, Any]], *, names: Mapping[str, str]) -> Iterator[Right]:
    """Each row of the roles that are bound to the operator; `names`: what the chart calls the
    ledger and the Lease, and what they are called here."""
    bound = {
        (each["metadata"].get("namespace", "*"), each["roleRef"]["name"])
        for each in objects
        if each["kind"].endswith("Binding") and each["subjects"][0]["kind"] == "ServiceAccount"
    }
    for each in objects:
        place = (each["metadata"].get("namespace", "*"), each["metadata"]["name"])
        if each["kind"] in {"Role", "ClusterRole"} and place in bound:
            for rule in each["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", [""]):
                                yield Right(verb, group, resource, place[0], names.get(name, name))


def role(right: Right, *, name: str) -> dict[str, Any]:
    """A Role or ClusterRole of that one row."""
    everywhere = right.where == "*"
    rule = {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole" if everywhere else "Role",
        "metadata": {"name": name} | ({} if everywhere else {"namespace": right.where}),
        "rules": [rule | ({"resourceNames": [right.name]} if right.name else {})],
    }


def binding(right: Right, *, name: str, accounts: list[str], namespace: str) -> dict[str, Any]:
    made = role(right, name=name)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{made['kind']}Binding",
        "metadata": made["metadata"],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": made["kind"],
            "name": name,
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": each, "namespace": namespace} for each in accounts
        ],
    }
