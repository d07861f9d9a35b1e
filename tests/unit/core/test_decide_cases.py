"""Single decisions that no story tells: wishes, runs that belong to others, words of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kit.decisions import asked, job_of, prepared, status_of, updated
from kit.observations import (
    applied,
    later,
    new_job,
    pod_of,
    running,
    with_exit,
    with_job,
    with_pod,
    with_report,
    with_view,
    without_pod,
)
from kit.scenarios import SCENARIOS
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType, RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.directives import desired_directive
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import Observed, Rejection, SpecProblem
from rtj_operator.core.plan import CreatePod, PatchDirective
from rtj_operator.core.policy import Policy


def on_one_host(observed: Observed) -> Observed:
    """The same gang on the host's network of one node: one address, a port of its own a rank."""
    for rank in (0, 1):
        observed = with_pod(observed, rank, ip="10.0.0.9", status_port=12000 + rank)
    return observed


def test_on_the_hosts_network_each_rank_is_found_at_its_own_port() -> None:
    observed = on_one_host(running())
    gang = gather(observed, policy=Policy(), alarm=Alarm(0), status=job_of(observed).status)
    assert gang.urls == {0: "http://10.0.0.9:12000", 1: "http://10.0.0.9:12001"}
    for member in gang.members:
        directive = desired_directive(gang, member)
        assert directive is not None
        assert (directive.coordinator, directive.coordinator_port) == ("10.0.0.9", 12000)


def test_ipv6_addresses_and_the_common_port() -> None:
    observed = with_pod(running(), 0, ip="fd00::1")
    gang = gather(observed, policy=Policy(), alarm=Alarm(0), status=job_of(observed).status)
    assert gang.urls[0] == "http://[fd00::1]:9871"
    directive = desired_directive(gang, gang.members[1])
    assert directive is not None
    assert (directive.coordinator, directive.coordinator_port) == ("fd00::1", None)


def test_a_pod_without_our_sidecars_port_is_no_peer() -> None:
    observed = with_pod(running(), 1, status_port=None)
    gang = gather(observed, policy=Policy(), alarm=Alarm(0), status=job_of(observed).status)
    assert set(gang.urls) == {0}


# --- wishes -------------------------------------------------------------------------------------


def test_a_restart_is_granted_once_for_each_id() -> None:
    seen = asked(running(), wire.RequestAction.RESTART)
    plan = decide(seen)
    status = status_of(plan)
    assert (status.attempt, status.last_request and status.last_request.id) == (2, "1")
    assert status.current is not None
    assert status.current.cause == Reason.RESTART_REQUESTED
    assert status.current.charge == Charge.INTENT
    after = applied(seen, plan)
    assert decide(after).rule == "converge"
    again = decide(asked(after, wire.RequestAction.RESTART, id="2"))
    assert status_of(again).attempt == 3


def test_a_restart_gives_the_older_trainer_its_grace() -> None:
    seen = asked(running(), wire.RequestAction.RESTART)
    patches = [
        a for a in decide(applied(seen, decide(seen))).actions if isinstance(a, PatchDirective)
    ]
    assert len(patches) == 2
    assert {p.directive.phase for p in patches} == {wire.Phase.PREPARE}
    assert {p.directive.grace_seconds for p in patches} == {30.0}


@pytest.mark.parametrize("action", list(wire.RequestAction))
def test_a_finished_job_refuses_every_wish_and_stays(action: wire.RequestAction) -> None:
    seen = asked(SCENARIOS["runs_to_the_end"].run().world.observe(), action)
    plan = decide(seen)
    status = status_of(plan)
    assert status.last_request is not None
    assert "refused" in status.last_request.result
    assert status.is_true(ConditionType.COMPLETE)
    assert decide(applied(seen, plan)).is_empty


def test_an_unknown_wish_is_refused_aloud() -> None:
    plan = decide(asked(running(), wire.RequestAction.RESUME_FROM))
    assert [n.type for n in plan.notes] == ["Warning"]
    assert status_of(plan).attempt == 1


def test_a_wish_that_cannot_be_read_degrades() -> None:
    plan = decide(with_job(running(), request_error="annotation …/request: no JSON"))
    degraded = status_of(plan).condition(ConditionType.DEGRADED)
    assert degraded is not None
    assert degraded.status == "True"
    assert "no JSON" in degraded.message


# --- the store's own words ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", [Reason.CREDENTIALS_REFUSED, Reason.BUCKET_MISSING, Reason.CREDENTIALS_MISSING]
)
def test_the_hold_names_what_the_store_said(reason: Reason) -> None:
    trouble = wire.Problem(reason=reason, message="403 on s3://b/p", since=1001.0)
    seen = prepared(listed=False, fence=None, degraded=[trouble])
    plan = decide(seen)
    status = status_of(plan)
    assert status.hold is not None
    assert status.hold.reason == reason
    assert "403 on s3://b/p" in status.hold.message
    assert [n.reason for n in plan.notes] == [reason]
    held = applied(seen, plan)
    assert not decide(held).actions, "prepare goes on asking: nothing new is said"
    healed = with_report(held, 0, updated(listed=True, fence=1, degraded=[]))
    assert status_of(decide(healed)).attempt == 2


def test_a_problem_that_no_try_can_heal_is_held() -> None:
    problem = wire.Problem(reason="SupervisorMissing", message="no python3 in it", since=1001.0)
    plan = decide(prepared(phase=wire.SidecarPhase.FAILED, problem=problem))
    status = status_of(plan)
    assert status.hold is not None
    assert status.hold.reason == Reason.SUPERVISOR_MISSING


# --- the fast path ------------------------------------------------------------------------------


SLOW: dict[str, Callable[[Observed], Observed]] = {
    "a rank has it not pinned": lambda o: with_report(o, 1, updated(pinned=[])),
    "no fence": lambda o: with_report(o, 0, updated(fence=None)),
    "a container is down": lambda o: with_pod(
        o, 1, trainer=replace(pod_of(o, 1).trainer, running=False)
    ),
    "an old report": lambda o: with_view(
        o, 1, connected=False, last_contact=o.now - 11, disconnected_since=o.now - 6
    ),
    "a shared directory": lambda o: with_job(
        o, spec=replace(job_of(o).spec, shared_directory=True)
    ),
    "the supervisor was not seen": lambda o: with_report(o, 1, updated(supervisor_seen=False)),
}


def test_a_crash_restarts_in_one_write() -> None:
    plan = decide(with_exit(running(), 0, exit_code=1))
    status = status_of(plan)
    assert status.is_started
    assert status.resume is not None
    assert status.resume.fast
    assert plan.evidence["fast"] is True


@pytest.mark.parametrize("change", SLOW.values(), ids=list(SLOW))
def test_what_stands_against_the_fast_path(change: Callable[[Observed], Observed]) -> None:
    plan = decide(change(with_exit(running(), 0, exit_code=1)))
    status = status_of(plan)
    assert not status.is_started
    assert plan.evidence["notFast"]


def test_the_culprits_last_save_is_waited_for_a_moment() -> None:
    seen = with_exit(running(), 0, exit_code=1)
    seen = with_report(seen, 0, updated(settling=True))
    seen = with_view(seen, 0, received_at=seen.now)
    plan = decide(seen)
    assert plan.is_empty
    assert plan.wake_at == pytest.approx(seen.now + 0.1)
    assert decide(later(seen, 0.1)).status is not None
    assert decide(with_report(seen, 0, updated(settling=False))).status is not None


# --- charges ------------------------------------------------------------------------------------


def test_a_victim_of_a_lost_node_is_not_charged_after_all() -> None:
    """The victim fell first where we looked; then the silent node turned out to be the cause."""
    base = running()
    node = pod_of(base, 1).node
    assert node is not None

    def leased(observed: Observed, at: float) -> Observed:
        lease = replace(base.nodes[node], lease_renewed_at=at)
        return replace(observed, nodes={**base.nodes, node: lease})

    seen = with_exit(later(base, 20), 0, exit_code=-6, signal=6)
    seen = with_view(
        seen, 1, connected=False, last_contact=base.now + 1, disconnected_since=base.now + 6
    )
    seen = leased(seen, base.now)
    first = decide(seen)
    current = status_of(first).current
    assert current is not None
    assert current.charge == Charge.USER
    second = decide(leased(later(applied(seen, first), 3), base.now))
    status = status_of(second)
    assert status.current is not None
    assert status.current.cause == Reason.NODE_LOST
    assert status.current.charge == Charge.INFRASTRUCTURE
    assert status.budgets.restarts_since_progress == 0
    assert status.failures == 0


def test_the_last_restart_is_not_charged_while_a_node_is_in_doubt() -> None:
    seen = with_exit(running(max_restarts=0), 0, exit_code=-6, signal=6)
    silent = with_view(
        seen, 1, connected=False, last_contact=seen.now - 12, disconnected_since=seen.now - 7
    )
    assert status_of(decide(seen)).is_terminal
    plan = decide(silent)
    assert plan.is_empty
    assert plan.wake_at is not None


def test_a_pod_that_was_sent_sigterm_is_not_a_crash() -> None:
    """The report may come before the API shows the deletion."""
    seen = with_exit(running(max_restarts=0), 1, exit_code=-15, signal=15, asked_to_stop=True)
    plan = decide(with_report(seen, 1, updated(terminating=True)))
    status = status_of(plan)
    assert status.current is not None
    assert status.current.cause == Reason.POD_DELETED
    assert status.current.kind == RestartKind.REPLACE


# --- specs that go bad --------------------------------------------------------------------------


def test_a_running_gang_survives_a_spec_that_went_bad() -> None:
    problem = SpecProblem(reason=Reason.COMMAND_MISSING, message="spec.template: no command")
    seen = with_job(running(), problem=problem, generation=2)
    plan = decide(seen)
    accepted = status_of(plan).condition(ConditionType.ACCEPTED)
    assert accepted is not None
    assert accepted.status == "False"
    assert status_of(plan).attempt == 1
    crashed = with_exit(applied(seen, plan), 0, exit_code=1)
    assert status_of(decide(crashed)).attempt == 2, "in place, with the pods that are there"


def test_no_pod_is_made_from_a_bad_spec() -> None:
    problem = SpecProblem(reason=Reason.COMMAND_MISSING, message="spec.template: no command")
    seen = with_pod(running(), 1, phase="Failed", reason="Evicted")
    seen = with_job(applied(seen, decide(seen)), problem=problem)
    assert not any(isinstance(a, CreatePod) for a in decide(seen).actions)


def test_a_refused_pod_is_shown_and_tried_again_later() -> None:
    world = new_job()
    Operator(world).run_pass()
    name = "gpt-0-1-abcd"
    refusals = {name: Rejection(code=403, message="exceeded quota: gpus", at=world.now)}
    seen = replace(world.observe(), rejections=refusals)
    creates = [a.name for a in decide(seen).actions if isinstance(a, CreatePod)]
    assert creates == ["gpt-1-1-abcd"]
    world.create(CreatePod(rank=1, made_in=1, name="gpt-1-1-abcd"))
    (told,) = decide(replace(world.observe(), rejections=refusals)).actions
    assert isinstance(told, PatchDirective)
    world.patch(told)
    shown = decide(replace(world.observe(), rejections=refusals))
    condition = status_of(shown).condition(ConditionType.RUNNING)
    assert condition is not None
    assert condition.reason == Reason.QUOTA_EXCEEDED
    assert "exceeded quota" in condition.message
    again = decide(replace(later(world.observe(), 16), rejections=refusals))
    assert any(isinstance(a, CreatePod) and a.name == name for a in again.actions)


# --- events of saves ----------------------------------------------------------------------------


def test_each_bad_save_is_told_of_once() -> None:
    seen = running()
    verdict = wire.Verdict(name="s8", step=8, reason="CheckpointTorn", message="torn", at=seen.now)
    bad = with_report(seen, 1, updated(verdicts=[verdict]))
    plan = decide(bad)
    assert [(n.reason, n.message) for n in plan.notes] == [(Reason.CHECKPOINT_TORN, "torn")]
    assert decide(applied(bad, plan)).is_empty


def test_a_survivor_that_names_saves_is_told_whose_pods_are_new() -> None:
    lost = without_pod(running(), 1)
    plan = decide(applied(lost, decide(lost)))
    (told,) = [a.directive for a in plan.actions if isinstance(a, PatchDirective)]
    assert (told.rank, told.phase, told.replaced) == (0, wire.Phase.PREPARE, [1])
    zero = without_pod(running(), 0)
    plan = decide(applied(zero, decide(zero)))
    (told,) = [a.directive for a in plan.actions if isinstance(a, PatchDirective)]
    assert (told.rank, told.replaced) == (1, [])  # a new rank 0 has nothing to name
