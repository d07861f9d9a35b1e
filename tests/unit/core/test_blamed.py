"""What `decide` does about a fault that has come before: charge, kind, node, save, and the end."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
from kit import observations
from kit.causes import FAILED, cause_of
from kit.observations import with_exit, with_job, with_pod, with_report
from kit.scenarios_of_trouble import TROUBLES
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.overrides import FailureAction, FailureRule
from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.status import CurrentAttempt, Hold, Incident, JobPhase, RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed

running = functools.cache(observations.running)

BY_MEMORY = {
    **FAILED,
    "reason": "Evicted",
    "message": "The node was low on resource: memory. Threshold quantity: 1Gi, available: 2Mi. ",
    "disruption": "TerminationByKubelet",
}


def died(seen: Observed, *, words: str = "", **ended: Any) -> Observed:
    tail = [words] if words else []
    return with_exit(seen, 1, **{"exit_code": 1, "tail": tail, **ended})


def after(seen: Observed, *incidents: Incident) -> Observed:
    """The same, had these been its faults since the last durable step."""
    assert seen.job is not None
    status = seen.job.status
    budgets = status.budgets.model_copy(update={"incidents": list(incidents)})
    return with_job(seen, status=status.model_copy(update={"budgets": budgets}))


def current_of(seen: Observed) -> CurrentAttempt:
    plan = cause_of(seen)
    assert plan.status is not None
    assert plan.status.current is not None
    return plan.status.current


def incident_of(seen: Observed) -> Incident:
    plan = cause_of(seen)
    assert plan.status is not None
    return plan.status.budgets.incidents[-1]


def test_what_is_remembered_of_a_fault() -> None:
    seen = died(running(), words="ValueError: bad batch 17")
    fault = incident_of(seen)
    assert fault.alike == "exit 1: ValueError: bad batch #"
    assert (fault.attempt, fault.node, fault.save) == (1, "node1", None)
    assert fault.step is not None
    assert fault.charge == Charge.USER


@pytest.mark.parametrize(
    ("words", "charge", "kind", "avoids"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "infrastructure", "Replace", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, x", "infrastructure", "Replace", True),
        ("ncclSystemError: System call failed", "infrastructure", "InPlace", False),
        ("torch.OutOfMemoryError: CUDA out of memory.", "user", "InPlace", False),
        ("No space left on device", "user", "InPlace", False),
        ("Connection reset by peer", "user", "InPlace", False),
        ("", "user", "InPlace", False),
    ],
)
def test_last_words_steer_the_restart(words: str, charge: str, kind: str, avoids: bool) -> None:
    current = current_of(died(running(), words=words))
    assert (current.charge, current.kind) == (charge, kind)
    assert current.avoid_nodes == (["node1"] if avoids else [])
    assert current.replaced == ([1] if avoids else [])
    assert current.varied == ("Node" if avoids else None)


def test_an_infrastructure_sign_leaves_the_budget_alone() -> None:
    seen = after(running())
    assert seen.job is not None
    spent = seen.job.status.budgets.model_copy(update={"restarts_since_progress": 10})
    seen = with_job(seen, status=seen.job.status.model_copy(update={"budgets": spent}))
    lost = died(seen, words="RuntimeError: No CUDA-capable device is detected")
    assert current_of(lost).charge == Charge.INFRASTRUCTURE
    plan = cause_of(died(seen))
    assert plan.status is not None
    assert plan.status.is_terminal


def test_the_second_crash_alike_moves_the_rank() -> None:
    seen = died(running(), exit_code=-11, signal=11)
    first = incident_of(seen)
    current = current_of(after(seen, first))
    assert current.kind == RestartKind.REPLACE
    assert current.avoid_nodes == ["node1"]
    assert "2 faults alike" in current.message
    assert "another node than node1" in current.message


def test_the_second_missing_module_is_the_end() -> None:
    seen = died(running(), words="ModuleNotFoundError: No module named 'flash_attn'")
    plan = cause_of(after(seen, incident_of(seen)))
    assert plan.status is not None
    assert plan.status.phase == JobPhase.FAILED
    assert plan.notes[0].reason == Reason.DETERMINISTIC_FAILURE
    assert "ModuleMissing" in plan.notes[0].message
    assert "apply the job anew" in plan.notes[0].message


@pytest.mark.parametrize("signal", [9, 15])
def test_a_signal_that_somebody_sends_convicts_nobody(signal: int) -> None:
    seen = died(running(), exit_code=-signal, signal=signal)
    first = incident_of(seen)
    current = current_of(after(seen, *[first] * 4))
    assert (current.kind, current.varied) == (RestartKind.IN_PLACE, None)


def test_an_eviction_for_pressure_is_free_once_an_hour() -> None:
    """An eviction is nobody's fault once; the same cause again without progress is a pattern."""
    seen = with_pod(running(), 1, **BY_MEMORY)
    first = incident_of(seen)
    assert first.alike == "Evicted for memory"
    assert current_of(seen).charge == Charge.INFRASTRUCTURE
    again = current_of(after(seen, first))
    assert again.charge == Charge.USER
    assert "2 times within an hour" in again.message
    other = first.model_copy(update={"alike": "Evicted for DiskPressure"})
    assert current_of(after(seen, other)).charge == Charge.INFRASTRUCTURE


def test_drains_are_free_however_often() -> None:
    """A rolling upgrade of all nodes says nothing of the job."""
    drained = {**FAILED, "disruption": "EvictionByEvictionAPI", "message": "evicted"}
    seen = with_pod(running(), 1, **drained)
    first = incident_of(seen)
    assert current_of(after(seen, *[first] * 5)).charge == Charge.INFRASTRUCTURE


def test_durable_work_forgets_all_of_it() -> None:
    seen = died(running(), words="ModuleNotFoundError: No module named 'x'")
    seen = after(seen, incident_of(seen))

    def saved(report: wire.Report) -> wire.Report:
        view = report.checkpoint.model_copy(
            update={
                "last_durable_name": "f1-n9-s900",
                "last_durable_step": 900,
                "last_durable_at": seen.now,
            }
        )
        return report.model_copy(update={"checkpoint": view})

    plan = cause_of(with_report(seen, 0, saved))
    assert plan.status is not None
    assert not plan.status.is_terminal
    assert len(plan.status.budgets.incidents) == 1


def test_what_a_person_changed_is_tried_afresh() -> None:
    status = TROUBLES["trouble_follows_the_program"].run().world.state
    assert status.phase == JobPhase.RUNNING
    assert status.budgets.incidents == []
    assert status.suspicions == []


def test_no_save_is_lost_to_a_wrong_image() -> None:
    world = TROUBLES["trouble_follows_the_program"].run().world
    assert world.store.invalid == set()
    assert world.state.resume is not None
    assert world.state.resume.step == 12


def test_the_node_is_changed_only_where_it_helps() -> None:
    """One crash in place, one on another node: two restarts for a bad node."""
    status = TROUBLES["trouble_follows_the_node"].run().world.state
    assert [r.kind for r in status.attempts] == ["First", "InPlace", "Replace"]


def test_a_bad_save_is_proved_by_the_older_one_and_marked() -> None:
    world = TROUBLES["trouble_follows_the_save"].run().world
    (bad,) = world.state.suspicions
    assert bad.is_proved
    assert bad.past_step == 14
    assert world.store.invalid == {bad.name}
    directive = world.pod_of(0).directive
    assert directive is not None
    assert [(s.name, s.past_step, s.is_proved) for s in directive.suspects] == [
        (bad.name, 15, False)  # as it was when the attempt was started
    ]
    other = world.pod_of(1).directive
    assert other is not None
    assert other.suspects == []


def save(name: str, step: int, **fields: Any) -> wire.Candidate:
    return wire.Candidate(name=name, step=step, durable=True, needs=[0], **fields)


@pytest.mark.parametrize(
    ("suspects", "bad", "older", "takes"),
    [
        ({"new": "why"}, {}, {}, "old"),
        # A suspicion never leaves a job without a save; a proved one does not count.
        ({"new": "why"}, {}, {"invalid": "CheckpointCorrupt"}, "new"),
        ({}, {"new": "why"}, {"invalid": "CheckpointCorrupt"}, None),
        ({"new": "why", "old": "why"}, {}, {}, "new"),
    ],
)
def test_a_suspicion_changes_the_order_and_nothing_else(
    suspects: dict[str, str], bad: dict[str, str], older: dict[str, Any], takes: str | None
) -> None:
    found = choose(
        Facts(
            run="r",
            world_size=1,
            candidates=[save("new", 20), save("old", 10, **older)],
            listed=True,
            pinned={},
            urls={},
            ever_durable=True,
            suspects=suspects,
            bad=bad,
        )
    )
    if takes is None:
        assert isinstance(found, NoChoice)
        assert found.reason == Reason.NO_VALID_CHECKPOINT
    else:
        assert isinstance(found, Chosen)
        assert found.resume.name == takes


@pytest.mark.parametrize(
    ("action", "charge", "kind"),
    [
        (FailureAction.COUNT, Charge.USER, RestartKind.IN_PLACE),
        (FailureAction.IGNORE, Charge.INFRASTRUCTURE, RestartKind.IN_PLACE),
        (FailureAction.AVOID_NODE, Charge.INFRASTRUCTURE, RestartKind.REPLACE),
        # Nothing was saved yet.
        (FailureAction.ROLL_BACK, Charge.USER, RestartKind.IN_PLACE),
    ],
)
def test_a_users_rule_comes_before_the_tables(
    action: FailureAction, charge: Charge, kind: RestartKind
) -> None:
    """Even of a sign that would move the rank, or end the job, as often as it comes."""
    rule = FailureRule(name="Mine", action=action, log_pattern="no module *named")
    seen = died(running(), words="ModuleNotFoundError: No module named 'x'")
    assert seen.job is not None
    assert seen.job.spec is not None
    seen = with_job(seen, spec=replace(seen.job.spec, failure_rules=(rule,)))
    first = incident_of(seen)
    assert first.alike == "Mine"
    current = current_of(after(seen, *[first] * 4))
    assert (current.charge, current.kind) == (charge, kind)
    assert current.culprit is not None
    assert current.culprit.signature == "Mine"


def test_a_rule_may_end_the_job_at_once() -> None:
    rule = FailureRule(name="NoLicence", action=FailureAction.FAIL_JOB, exit_codes=(42,))
    plan = cause_of(died(running(failure_rules=(rule,)), exit_code=42))
    assert plan.status is not None
    assert plan.status.phase == JobPhase.FAILED
    assert "recovery.failureRules NoLicence: FailJob" in plan.notes[0].message


def test_a_whole_save_that_fails_after_each_load_is_left_after_two_tries() -> None:
    """Megatron-LM#5281: 44 equal cycles from a save that went wrong three steps after each load."""
    status = TROUBLES["trouble_follows_the_save"].run().world.state
    tries = [r for r in status.attempts if r.started and r.from_step == 12]
    assert len(tries) == 2
    assert status.phase == JobPhase.RUNNING
    assert (status.progress.step or 0) > 16


def test_the_new_pod_is_not_made_on_the_node_that_failed() -> None:
    """kueue#14092: the replacement landed on the failed node again."""
    world = TROUBLES["gpu_lost"].run().world
    assert world.pod_of(1).node not in world.trouble.nodes
    assert world.state.budgets.restarts_since_progress == 0


def believed(seen: Observed, count: int) -> Observed:
    """The same, had so many restarts been free for a sign's word alone."""
    assert seen.job is not None
    status = seen.job.status
    budgets = status.budgets.model_copy(update={"believed": count})
    return with_job(seen, status=status.model_copy(update={"budgets": budgets}))


GPU = "CUDA error: uncorrectable ECC error encountered"


def test_signs_that_take_turns_are_not_free_for_ever() -> None:
    """Each kind is believed three times; more kinds than are remembered must not make it more."""
    assert current_of(believed(died(running(), words=GPU), 8)).charge == Charge.INFRASTRUCTURE
    last = current_of(believed(died(running(), words=GPU), 9))
    assert last.charge == Charge.USER
    assert "9 times" in last.message


def test_each_free_restart_for_a_sign_is_counted_once() -> None:
    plan = cause_of(believed(died(running(), words=GPU), 4))
    assert plan.status is not None
    assert plan.status.budgets.believed == 5
    own = cause_of(believed(died(running(), words="ValueError: no"), 4))
    assert own.status is not None
    assert own.status.budgets.believed == 4


def test_what_kubernetes_itself_says_of_a_pods_place_stays_free() -> None:
    seen = believed(with_pod(running(), 1, deleting_since=1008.0), 50)
    current = current_of(seen)
    assert (current.cause, current.charge) == (Reason.POD_DELETED, Charge.INFRASTRUCTURE)


def test_a_pod_that_ends_again_and_again_is_not_free_for_ever() -> None:
    for count, charge in ((8, Charge.INFRASTRUCTURE), (9, Charge.USER)):
        seen = believed(with_pod(running(), 1, phase="Failed", reason=None), count)
        current = current_of(seen)
        assert (current.cause, current.charge) == (Reason.POD_FAILED, charge)


def test_a_hold_that_ends_by_itself_forgets_nothing() -> None:
    """A store that fails now and then would make each sign free for ever."""
    hold = Hold(
        reason=Reason.STORE_UNREACHABLE,
        message="no answer",
        since=900.0,
        retry_at=1.0,
        generation=1,
    )
    for generation, count in ((1, 7), (2, 0)):
        seen = believed(running(), 7)
        assert seen.job is not None
        held = seen.job.status.model_copy(update={"hold": hold, "held_since": 900.0})
        plan = decide(with_job(seen, status=held, generation=generation))
        assert plan.status is not None
        assert plan.status.current is not None
        assert plan.status.current.cause == Reason.HOLD_ENDED
        assert plan.status.budgets.believed == count
