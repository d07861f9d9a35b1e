"""What keeps a pod from running or ends its trainer, in words that a person can act on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import later, new_job, pod_of, running, started, with_exit, with_pod
from kit.observations import with_report as changed
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType
from rtj_operator.core import ports
from rtj_operator.core.conditions import next_conditions
from rtj_operator.core.decide import decide
from rtj_operator.core.directives import desired_directive
from rtj_operator.core.gang import Alarm, Gang, gather
from rtj_operator.core.observed import ContainerEnd, ContainerView, Observed, Rejection
from rtj_operator.core.policy import Policy
from rtj_operator.core.quantities import mebibytes, parsed
from rtj_operator.core.rejections import worded

# The API server's own answers (Kubernetes 1.34) -> words of the remedy.
ANSWERS = {
    "quota": (
        'pods "gpt-0-1-ab12" is forbidden: exceeded quota: team, requested: requests.cpu=250m, '
        "used: requests.cpu=2, limited: requests.cpu=2",
        "Raise ResourceQuota team",
    ),
    "quota that wants a figure": (
        'pods "gpt-0-1-ab12" is forbidden: failed quota: team: must specify limits.cpu for: '
        "rtj-sidecar,trainer",
        "spec.sidecar.resources",
    ),
    "limit range": (
        'pods "x" is forbidden: maximum memory usage per Container is 512Mi, but limit is 1Gi',
        "LimitRange",
    ),
    "ratio": (
        'pods "x" is forbidden: cpu max limit to request ratio per Container is 2, but provided '
        "ratio is 4.000000",
        "LimitRange",
    ),
    "sidecar as root": (
        'pods "x" is forbidden: violates PodSecurity "restricted:latest": unrestricted '
        'capabilities (container "rtj-sidecar" must not include "CHOWN", "DAC_OVERRIDE", "FOWNER" '
        'in securityContext.capabilities.add), runAsNonRoot != true (container "rtj-sidecar" must '
        'not set securityContext.runAsNonRoot=false), runAsUser=0 (container "rtj-sidecar" must '
        "not set runAsUser=0)",
        "securityContext.runAsUser",
    ),
    "another policy": (
        'pods "x" is forbidden: violates PodSecurity "baseline:v1.34": host namespaces '
        "(hostNetwork=true)",
        "pod-security.kubernetes.io/enforce=baseline",
    ),
    "service account": (
        'pods "x" is forbidden: error looking up service account ns/robot: serviceaccount "robot" '
        "not found",
        "Make the ServiceAccount robot",
    ),
    "priority": (
        'pods "x" is forbidden: no PriorityClass with name urgent was found',
        "PriorityClass urgent",
    ),
    "webhook": (
        'admission webhook "validate.kyverno.svc" denied the request: no latest tag',
        "webhook validate.kyverno.svc",
    ),
    "anything else": ("something new", "spec.template"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_refusal_keeps_the_servers_words_and_adds_a_remedy(case: str) -> None:
    said, remedy = ANSWERS[case]
    text = worded(said)
    assert remedy in text
    assert 'pods "' not in text, "the pod's name changes with each try"
    kept = said.partition("is forbidden: ")[2] or said
    assert text.startswith(kept)


def test_a_refused_pod_is_tried_again_and_the_condition_says_so() -> None:
    operator = started(new_job())
    seen = operator.world.observe()
    seen = replace(
        seen,
        pods=(),
        job=replace(seen.job, status=replace_status(seen, resume=None)),  # type: ignore[arg-type]
        rejections={
            pod_of(seen, 1).name: Rejection(code=403, message=ANSWERS["quota"][0], at=seen.now)
        },
    )
    condition = condition_of(seen, ConditionType.RUNNING)
    assert condition.reason == Reason.QUOTA_EXCEEDED
    assert "Raise ResourceQuota team" in condition.message
    assert "tried again every 15 s" in condition.message
    made = [action.rank for action in decide(seen).actions]  # type: ignore[union-attr]
    assert made == [0]
    assert sorted(a.rank for a in decide(later(seen, 15)).actions) == [0, 1]  # type: ignore[union-attr]


def test_mebibytes_are_rounded_up() -> None:
    assert mebibytes(2**20 + 1) == "2Mi"
    assert mebibytes(parsed("64Mi") or 0) == "64Mi"


KILLS = {
    "a child": ({"exit_code": 1, "oom_kills": 1}, "a process that the trainer had started"),
    "children": ({"exit_code": 1, "oom_kills": 3}, "3 processes that the trainer had started"),
    "itself": ({"exit_code": -9, "signal": 9, "oom_kills": 1}, "the trainer itself"),
}


@pytest.mark.parametrize("case", KILLS)
def test_out_of_memory_says_who_and_at_which_limit(case: str) -> None:
    fields, who = KILLS[case]
    seen = with_exit(running(), 1, memory_limit_bytes=160 * 2**20, **fields)
    current = decide(seen).status.current  # type: ignore[union-attr]
    assert current is not None
    assert current.cause == Reason.OUT_OF_MEMORY
    assert who in current.message
    assert "memory limit of 160 MiB" in current.message


def test_a_kill_below_its_own_limit_is_the_nodes() -> None:
    fields = {"exit_code": -9, "signal": 9, "oom_kills": 1, "memory_limit_bytes": 160 * 2**20}
    current = decide(with_exit(running(), 1, oom_of_node=True, **fields)).status.current  # type: ignore[union-attr]
    assert current is not None
    assert (current.cause, current.charge) == (Reason.NODE_OUT_OF_MEMORY, Charge.INFRASTRUCTURE)
    assert current.avoid_nodes == ["node1"]
    assert current.replaced == [1]
    assert "its node had no memory left" in current.message
    own = decide(with_exit(running(), 1, **fields)).status.current  # type: ignore[union-attr]
    assert own is not None
    assert (own.cause, own.charge) == (Reason.OUT_OF_MEMORY, Charge.USER)


def test_a_whole_container_killed_for_memory_says_so() -> None:
    end = ContainerEnd(exit_code=137, reason="OOMKilled", finished_at=1009.0)
    view = ContainerView(name="trainer", running=True, last_end=end, restarts=1)
    seen = with_pod(with_exit(running(), 1, container_restarted=True), 1, trainer=view)
    current = decide(seen).status.current  # type: ignore[union-attr]
    assert current is not None
    assert current.cause == Reason.OUT_OF_MEMORY
    assert "the whole container" in current.message


def test_a_killed_worker_that_the_trainer_survives_is_shown() -> None:
    def lost_one(report: wire.Report) -> wire.Report:
        trainer = report.trainer.model_copy(update={"oom_kills": 1})
        return report.model_copy(update={"trainer": trainer})

    condition = condition_of(changed(running(), 1, lost_one), ConditionType.DEGRADED)
    assert (condition.status, condition.reason) == ("True", Reason.OUT_OF_MEMORY)
    assert "goes on without it" in condition.message


def test_a_sidecar_killed_for_memory_is_shown() -> None:
    seen = running()
    sidecar = pod_of(seen, 0).sidecar
    assert sidecar is not None
    end = ContainerEnd(exit_code=137, reason="OOMKilled", finished_at=seen.now - 5)
    seen = with_pod(seen, 0, sidecar=replace(sidecar, last_end=end, restarts=1))
    condition = condition_of(seen, ConditionType.DEGRADED)
    assert "spec.sidecar.resources.limits.memory" in condition.message


def test_an_unhealthy_trainer_is_no_success_however_it_ended() -> None:
    why = "its liveness probe failed 3 times: HTTP status 500"
    seen = with_exit(running(), 0, exit_code=0, asked_to_stop=True, unhealthy=why)
    current = decide(seen).status.current  # type: ignore[union-attr]
    assert current is not None
    assert current.cause == Reason.TRAINER_UNHEALTHY
    assert why in current.message


def test_a_users_init_container_that_crashes_is_named() -> None:
    operator = started(new_job())
    seen = operator.world.observe()
    seen = replace(seen, job=replace(seen.job, status=replace_status(seen, resume=None)))  # type: ignore[arg-type]
    end = ContainerEnd(exit_code=3, reason="Error", finished_at=seen.now)
    crashing = ContainerView(
        name="fetch", waiting_reason="CrashLoopBackOff", last_end=end, restarts=4
    )
    condition = condition_of(with_pod(seen, 1, others=(crashing,)), ConditionType.RUNNING)
    assert condition.reason == Reason.CONTAINER_CRASHING
    assert "rank 1: container fetch" in condition.message
    assert "exit code 3" in condition.message


def test_containers_that_are_never_made_are_told_after_a_while() -> None:
    operator = started(new_job())
    seen = operator.world.observe()
    seen = replace(seen, job=replace(seen.job, status=replace_status(seen, resume=None)))  # type: ignore[arg-type]
    waiting = ContainerView(name="rtj-sidecar", waiting_reason="PodInitializing")
    seen = with_pod(
        seen, 1, phase="Pending", sidecar=waiting, trainer=None, created_at=seen.now - 5
    )
    assert condition_of(seen, ConditionType.RUNNING).reason != Reason.CONTAINER_CONFIG_ERROR
    found = condition_of(later(seen, 60), ConditionType.RUNNING)
    assert found.reason == Reason.CONTAINER_CONFIG_ERROR
    assert "volume" in found.message


def test_ports_on_the_hosts_network_meet_nobody_of_the_same_job() -> None:
    status = {
        ports.status_port("uid", place=rank, made_in=made_in, places=4)
        for rank in range(4)
        for made_in in range(1, 5)
    }
    rendezvous = {ports.rendezvous_port("uid", attempt=n) for n in range(1, 50)}
    assert len(status) == 16
    assert len(rendezvous) == 49
    assert all(10_000 <= port < 28_000 for port in status | rendezvous)
    assert ports.rendezvous_port("one", attempt=1) != ports.rendezvous_port("two", attempt=1)


@pytest.mark.parametrize("told", [(True, True), (True, False), (False, False)])
def test_the_rendezvous_port_is_told_only_where_every_sidecar_listens(
    told: tuple[bool, bool],
) -> None:
    seen = running()
    for rank, listens in enumerate(told):
        seen = with_pod(seen, rank, rendezvous_told=listens)
    plan = decide(with_exit(seen, 1, exit_code=1))
    assert plan.status is not None
    gang = gang_of(replace(seen, job=replace(seen.job, status=plan.status)))  # type: ignore[arg-type]
    found = {desired_directive(gang, m).rendezvous_port for m in gang.members}  # type: ignore[union-attr]
    expected = ports.rendezvous_port(gang.job.uid, attempt=2) if all(told) else None
    assert found == {expected}


def replace_status(seen: Observed, **fields: Any) -> Any:
    assert seen.job is not None
    return seen.job.status.model_copy(update=fields)


def gang_of(seen: Observed) -> Gang:
    assert seen.job is not None
    return gather(seen, policy=Policy(), alarm=Alarm(seen.now), status=seen.job.status)


def condition_of(seen: Observed, kind: ConditionType) -> Any:
    return next(c for c in next_conditions(gang_of(seen)) if c.type == kind)
