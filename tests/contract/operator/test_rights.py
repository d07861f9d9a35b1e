"""Least privilege, proven: each permission of the chart, taken away alone, breaks the call that
needs it; and an operator that lacks one says which, and does not crash.

An account for each permission has all others. The server enforces what a cluster may: whoever
makes a pod that keeps its owner from going must have a right to the owner's finalizers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.chart import render
from kit.foreign_crds import crd, pod_groups
from kit.kube import Kube, wait_for
from kit.on_server import server_of_this_tree
from kit.operator_process import OperatorProcess
from kit.played import a_job, eventually
from kit.rights import (
    GANGS,
    LEASE,
    LEDGER,
    NEEDS,
    OWN,
    Place,
    Right,
    binding,
    granted,
    object_named,
    role,
)
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.cluster import KubeCluster, load_configuration
from rtj_operator.shell.metrics import OPERATOR
from rtj_operator.shell.rights import missing

pytestmark = pytest.mark.contract

FULL = "has-all"
ENFORCED = ("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",)
FULL_NAME = "rto-resumable-training-operator"
NAMES = {f"{FULL_NAME}-nodes": LEDGER, FULL_NAME: LEASE}
GIVEN = list(NEEDS)
# A server of this version has that group without that kind, and lets nobody add one: whether
# create is allowed it never asks. One function applies the groups of all three.
NOT_SERVED = Right("create", "scheduling.k8s.io", "podgroups")


@dataclass(frozen=True)
class Accounts:
    """One for each right, which lacks it alone; and one that has all."""

    server: Kube
    place: Place
    files: Path

    def kubeconfig(self, name: str) -> str:
        file = self.files / f"{name}.yaml"
        if not file.exists():
            token = self.server.within(self.place.namespace).run("create", "token", name).strip()
            config = yaml.safe_load(Path(self.server.kubeconfig).read_text())
            config["users"] = [{"name": each["name"], "user": {"token": token}}
                               for each in config["users"]]  # fmt: skip
            file.write_text(yaml.safe_dump(config))
        return str(file)

    async def client(self, name: str) -> KubeCluster:
        configuration = await load_configuration(kubeconfig=self.kubeconfig(name))
        return KubeCluster(configuration, user_agent="rights")


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with server_of_this_tree(name="rtj-rights", apiserver_args=ENFORCED) as server:
        space = server.make_namespace(f"rights-{uuid.uuid4().hex[:6]}")
        server.make_namespace(OWN)
        lacking = [f"lacks-{n}" for n in range(len(GIVEN))]
        kueue = crd(group="kueue.x-k8s.io", version="v1beta1", kind="Workload", plural="workloads")
        kinds = [f"{group}/{GANGS[group]}" for group in GANGS if group != NOT_SERVED.group]
        server.apply(*map(pod_groups, kinds), kueue)
        space.apply(
            a_job(namespace=space.namespace, name="owner", suspend=True),
            *(
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": each}}
                for each in [FULL, *lacking]
            ),
        )
        server.within(OWN).apply(
            object_named(LEDGER, kind="ConfigMap", api="v1"),
            object_named(LEASE, kind="Lease", api="coordination.k8s.io/v1"),
        )
        made: dict[str, list[dict[str, Any]]] = {}
        for number, right in enumerate(GIVEN):
            others = [FULL, *(each for each in lacking if each != lacking[number])]
            name = f"right-{number}"
            bound = binding(right, name=name, accounts=others, namespace=space.namespace)
            made.setdefault(right.where, []).extend([role(right, name=name), bound])
        for where, objects in made.items():
            server.within("default" if where == "*" else where).apply(*objects)
        uid = space.get("rtj", "owner")["metadata"]["uid"]
        yield Accounts(server, Place(space.namespace, uid), tmp_path_factory.mktemp("accounts"))


async def refused(cluster: KubeCluster, right: Right, place: Place) -> str | None:
    """What the API server says where it forbids the call that needs this right."""
    try:
        await NEEDS[right](cluster, place)
    except PermissionError as error:
        return str(error)
    except ApiError as error:
        return error.message if error.status == 403 else None
    return None


def test_the_table_is_what_the_chart_grants() -> None:
    objects = render()
    assert set(granted(objects, names=NAMES)) == set(NEEDS)
    limited = {"watch.namespaces": ["team-a"], "rbac.nodes": False, "clusterUID": "x"}
    here = {
        Right(right.verb, right.group, right.resource, "*", right.name)
        if right.where == "team-a"
        else right
        for right in granted(render(values=limited), names=NAMES)
    }
    outside = {"nodes", "namespaces"}
    assert here == {
        right
        for right in NEEDS
        if right.resource not in outside and right.where != "kube-node-lease"
    }


@pytest.mark.timeout(240)
async def test_each_right_that_is_taken_away_breaks_what_needs_it(accounts: Accounts) -> None:
    full = await accounts.client(FULL)
    left = set(GIVEN)

    async def has_all() -> bool:
        for right in list(left):
            if await refused(full, right, accounts.place) is None:
                left.discard(right)
        return not left

    await eventually(has_all, within=60, what="what is granted is known to the API server")
    await full.close()
    served = accounts.server.run("api-resources", f"--api-group={NOT_SERVED.group}", "-o=name")
    assert NOT_SERVED.resource not in served, "it can be tried now"
    for number, right in enumerate(GIVEN):
        if right == NOT_SERVED:
            continue
        if right.verb == "create" and right.resource == "podgroups":
            kind = f"podgroups.{right.group}"
            accounts.server.within(accounts.place.namespace).run("delete", kind, "--all")
        cluster = await accounts.client(f"lacks-{number}")
        said = await refused(cluster, right, accounts.place)
        await cluster.close()
        assert said is not None, f"nothing needs: {right}"
        permission = missing(said)
        if right.resource.endswith("/finalizers"):
            assert "can't set finalizers on" in said
        else:
            assert permission is not None, said
            told = (permission.verb, permission.group, permission.resource)
            assert told == (right.verb, right.group, right.resource)


@pytest.mark.timeout(240)
async def test_an_operator_without_a_right_names_it_and_goes_on_when_it_is_given(
    accounts: Accounts, tmp_path: Path
) -> None:
    """Without the watch of pods nothing can be done; without events, all but to tell of it."""
    kube = accounts.server
    lacking = {Right("watch", "", "pods"), Right("create", "events.k8s.io", "events")}
    name, space = "lacks-two", accounts.place.namespace
    kube.within(space).apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    )

    def grant(*rights: Right) -> None:
        numbers = [GIVEN.index(right) for right in rights]
        kube.apply(
            *(
                binding(GIVEN[n], name=f"right-{n}", accounts=[name], namespace=space)
                | {"metadata": {"name": f"two-{n}"}}
                for n in numbers
            )
        )

    everywhere = {right for right in NEEDS if right.where == "*"}
    grant(*(everywhere - lacking))
    operator = OperatorProcess(accounts.kubeconfig(name), "", tmp_path / "operator.log")
    operator.begin()
    try:
        await eventually(
            names(operator, "watch pods in the whole cluster"),
            within=120,
            what=f"the missing right is named; see {operator.log}",
        )
        status, words = await operator.get("/readyz")
        assert status == 503
        assert 'cannot watch resource "pods"' in words
        assert (await operator.get("/healthz"))[0] == 200, "a restart would not help"
        series = f"{OPERATOR}_permission_refused_timestamp_seconds"
        at = await operator.value(series, verb="watch", group="", resource="pods")
        assert at is not None

        grant(Right("watch", "", "pods"))
        await eventually(operator.is_ready, within=60, what="it goes on by itself")
        kube.within(space).apply(a_job(namespace=space, name="told", suspend=True))
        await eventually(
            names(operator, f"create events.events.k8s.io in namespace {space}"),
            within=60,
            what=f"the other one is named, too; see {operator.log}",
        )
        wait_for(
            lambda: kube.within(space).get("rtj", "told")["status"]["phase"] == "Suspended",
            within=60,
            what="the job is looked after all the same",
        )
        assert operator.process.poll() is None
    finally:
        await operator.stop()


def names(operator: OperatorProcess, right: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return any(line.get("may_not") == right for line in operator.lines())

    return look


def test_what_else_is_forbidden_is_no_missing_right() -> None:
    quota = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2'
    assert missing(quota) is None
    said = json.loads(
        '"pods is forbidden: User \\"u\\" cannot list resource \\"pods\\" in API group \\"\\" at '
        'the cluster scope"'
    )
    assert str(missing(said)) == "list pods in the whole cluster"
