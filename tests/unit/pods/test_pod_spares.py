"""A spare's pod: any rank's, but for its name, its labels, and what its sidecar is told."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
from kit.specs import FULL, HOST_NETWORK, OWNER, SETTINGS, SMALLEST, a_pod, a_spec, config_of
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import GangScheduler, JobSpec
from rtj_api.wire import SidecarConfig
from rtj_operator.core.pod_facts import Owner
from rtj_operator.core.pods import desired_spare, refusal_of
from rtj_operator.core.template import name_limit

RANK = f"metadata.labels['{contract.LABEL_RANK}']"


def with_spares(spec: JobSpec, spares: int = 2) -> JobSpec:
    recovery = spec.recovery.model_copy(update={"spares": spares})
    return spec.model_copy(update={"recovery": recovery})


def a_spare(spec: JobSpec, *, spare: int = 0, made_in: int = 1) -> dict[str, Any]:
    return desired_spare(
        with_spares(spec), owner=OWNER, spare=spare, made_in=made_in, settings=SETTINGS
    )


@pytest.mark.parametrize("spec", [SMALLEST, FULL, HOST_NETWORK])
def test_it_differs_from_a_ranks_pod_in_nothing_else(spec: JobSpec) -> None:
    pod, spare = a_pod(spec), a_spare(spec)
    kubernetes_validate.validate(spare, "1.34", strict=True)
    assert spare["metadata"]["name"] == contract.spare_name(
        job=OWNER.name, spare=0, made_in=1, job_uid=OWNER.uid
    )
    told, known = config_of(spare), config_of(pod)
    assert (told["rank"], told["spare"]) == (contract.NO_RANK, 0)
    assert SidecarConfig.model_validate(told).spare == 0
    for config in (told, known):
        for name in ("rank", "spare", "statusPort"):
            config.pop(name, None)
    assert told == known
    labels = spare["metadata"]["labels"]
    assert labels.pop(contract.LABEL_ROLE) == contract.ROLE_SPARE
    others = deepcopy(pod["metadata"]["labels"])
    del others[contract.LABEL_RANK], others[contract.LABEL_ROLE]
    assert labels == others
    assert spare["metadata"]["annotations"] == pod["metadata"]["annotations"]
    for made in (pod, spare):
        made["spec"].pop("affinity", None)
        made["spec"]["initContainers"][0] = {}
    assert spare["spec"] == pod["spec"]


def test_it_would_rather_be_where_no_pod_of_the_job_is() -> None:
    (wish,) = a_spare(SMALLEST)["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    term = wish["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == {"matchLabels": {contract.LABEL_JOB: OWNER.name}}


def test_where_a_nodes_disk_holds_the_saves_it_must() -> None:
    on_host = a_spec(
        replicas=1,
        trainer={"volumeMounts": [{"name": "d", "mountPath": "/checkpoints"}]},
        pod={"volumes": [{"name": "d", "hostPath": {"path": "/mnt/ckpt"}}]},
    )
    affinity = a_spare(on_host)["spec"]["affinity"]["podAntiAffinity"]
    assert len(affinity["requiredDuringSchedulingIgnoredDuringExecution"]) == 1


def test_on_the_hosts_network_ranks_and_spares_have_ports_of_their_own() -> None:
    spec = with_spares(HOST_NETWORK)
    ports = [
        config_of(a_pod(spec, rank=r, made_in=m))["statusPort"] for r in (0, 1) for m in (1, 2)
    ]
    ports += [
        config_of(a_spare(spec, spare=s, made_in=m))["statusPort"] for s in (0, 1) for m in (1, 2)
    ]
    assert len(set(ports)) == len(ports)


def test_a_name_has_to_leave_room_for_a_spares() -> None:
    name = "j" * name_limit(replicas=2)
    owner = Owner(namespace="team", name=name, uid=OWNER.uid)
    assert refusal_of(SMALLEST, owner=owner) is None
    refusal = refusal_of(with_spares(SMALLEST), owner=owner)
    assert refusal is not None
    assert refusal.reason == Reason.NAME_TOO_LONG


def by_label(path: str, *, kind: str = "containers") -> JobSpec:
    entry = {"name": "R", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    if kind == "containers":
        return a_spec(trainer={"env": [entry]})
    return a_spec(pod={kind: [{"name": "x", "image": "i", "command": ["x"], "env": [entry]}]})


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_rank_that_is_read_before_there_is_one_is_refused(kind: str) -> None:
    spec = by_label(RANK, kind=kind)
    assert refusal_of(spec, owner=OWNER) is None, "without spares it is right"
    refusal = refusal_of(with_spares(spec), owner=OWNER)
    assert refusal is not None
    assert "RTJ_RANK" in refusal.message
    assert f"{kind}[0].env[R]" in refusal.message
    assert "spec.recovery.spares" in refusal.message


def test_any_other_label_may_be_read() -> None:
    assert refusal_of(with_spares(by_label("metadata.labels['team']")), owner=OWNER) is None


@pytest.mark.parametrize("gang", [g for g in GangScheduler if g is not GangScheduler.NONE])
def test_a_group_of_ranks_takes_no_spare_in(gang: GangScheduler) -> None:
    queue = {"queue": "team"} if gang is GangScheduler.KUEUE else {}
    spec = a_spec(scheduling={"gang": gang, **queue})
    assert refusal_of(spec, owner=OWNER) is None
    refusal = refusal_of(with_spares(spec), owner=OWNER)
    assert refusal is not None
    assert "spec.scheduling.gang" in refusal.message
    assert "spec.recovery.spares" in refusal.message
