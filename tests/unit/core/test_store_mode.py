"""Store mode in the decision core: when it begins, what is judged in it, how it is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.observations import applied, later, pod_of, running, with_job, with_pod, with_view
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType, RestartKind
from rtj_api.wire import SidecarPhase, TrainerState
from rtj_operator.core.decide import decide
from rtj_operator.core.lastwords import is_released, last_words_of
from rtj_operator.core.observed import (
    ContainerEnd,
    ContainerView,
    JobSpec,
    Observed,
    PodView,
    ReportView,
)
from rtj_operator.core.plan import PatchDirective, Plan
from rtj_sidecar.lastwords import last_words


def unheard(observed: Observed, *ranks: int) -> Observed:
    """From now on these ranks' reports do not come through."""
    for rank in ranks:
        observed = with_view(
            observed,
            rank,
            connected=False,
            last_contact=observed.now,
            disconnected_since=observed.now,
        )
    return observed


def alive(observed: Observed, **fields: object) -> Observed:
    """Every node's kubelet has just renewed its Lease."""
    fields = {"lease_renewed_at": observed.now, **fields}
    nodes = {n: replace(v, **fields) for n, v in observed.nodes.items()}  # type: ignore[arg-type]
    return replace(observed, nodes=nodes)


def in_store_mode(**spec: object) -> Observed:
    """A running gang, 31 s after its reports vanished, with the mode recorded and told."""
    seen = alive(later(unheard(running(**spec), 0, 1), 31))
    seen = applied(seen, decide(seen))
    plan = decide(seen)
    for action in plan.actions:
        assert isinstance(action, PatchDirective)
        seen = with_pod(seen, action.directive.rank, directive=action.directive)
    return seen


def with_end(observed: Observed, rank: int, *, code: int, message: str | None = None) -> Observed:
    """The kubelet has started the trainer's container again after this end."""
    end = ContainerEnd(
        exit_code=code, reason="Error", message=message, finished_at=float(int(observed.now))
    )
    view = ContainerView(name="trainer", running=True, last_end=end, restarts=1)
    return with_pod(observed, rank, trainer=view)


def words(observed: Observed, rank: int, *, code: int, **fields: object) -> str:
    """What the sidecar of that rank would leave in the termination message."""
    view = observed.reports[pod_of(observed, rank).uid]
    assert view.report is not None
    trainer = view.report.trainer.model_copy(
        update={"state": TrainerState.EXITED, "exit_code": code, "ended_at": observed.now - 0.5}
    )
    said = {"phase": SidecarPhase.EXITED, "trainer": trainer, **fields}
    return last_words(view.report.model_copy(update={"sequence": view.report.sequence + 7, **said}))


def cause(plan: Plan) -> tuple[str, str, str]:
    assert plan.status is not None
    assert plan.status.current is not None
    current = plan.status.current
    return current.cause, current.charge, current.kind


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_it_begins_after_half_a_minute_and_is_recorded_before_anything(ranks) -> None:
    seen = unheard(running(), *ranks)
    assert decide(alive(later(seen, 29))).rule != "store_mode"
    seen = alive(later(seen, 31))
    plan = decide(seen)
    assert plan.rule == "store_mode"
    assert not plan.actions
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.through_store
    assert plan.status.attempt == 1
    assert "9871" in plan.notes[0].message
    told = decide(applied(seen, plan))
    directives = [a.directive for a in told.actions if isinstance(a, PatchDirective)]
    assert {d.rank for d in directives} == {0, 1}
    assert all(d.phase == wire.Phase.GO and d.through_store for d in directives)
    assert all(d.resume is not None for d in directives), "what was chosen stays chosen"


def test_once_told_it_is_at_rest() -> None:
    assert decide(in_store_mode()).rule in ("settled", "refresh")


@pytest.mark.parametrize(
    "node",
    [{"ready": None}, {"ready": False}, {"exists": False}, {"lease_renewed_at": 1000.0}],
    ids=str,
)
def test_a_node_that_may_be_dead_is_no_reason_for_it(node) -> None:
    seen = later(unheard(running(), 0, 1), 31)
    assert decide(alive(seen, **node)).rule != "store_mode"


def test_without_a_store_there_is_nothing_to_agree_through() -> None:
    seen = alive(later(unheard(running(has_store=False), 0, 1), 31))
    assert decide(seen).rule != "store_mode"


def test_sidecars_of_an_older_version_cannot_agree_through_it() -> None:
    seen = with_pod(unheard(running(), 0, 1), 1, has_store_mode=False)
    assert decide(alive(later(seen, 31))).rule != "store_mode"


def test_silence_is_no_evidence_in_it() -> None:
    """Neither missed deadlines nor a dead connection: hours later nothing has happened."""
    seen = alive(later(in_store_mode(), 7200))
    plan = decide(seen)
    assert plan.status is None or plan.status.attempt == 1


@pytest.mark.parametrize(
    ("ready", "stale", "is_lost"),
    [(True, True, False), (None, False, False), (None, True, True), (False, True, True)],
)
def test_a_node_is_lost_by_kubernetes_word_and_a_stale_lease(ready, stale, is_lost) -> None:
    seen = alive(later(in_store_mode(), 100))
    node = pod_of(seen, 1).node
    assert node is not None
    renewed = seen.now - (30 if stale else 1)
    hurt = replace(seen.nodes[node], ready=ready, lease_renewed_at=renewed)
    plan = decide(replace(seen, nodes={**seen.nodes, node: hurt}))
    if is_lost:
        assert cause(plan) == (Reason.NODE_NOT_READY, Charge.INFRASTRUCTURE, RestartKind.REPLACE)
    else:
        assert plan.status is None or plan.status.attempt == 1


def test_a_container_that_passes_a_failure_on_is_a_fault_of_the_trainer() -> None:
    seen = alive(later(in_store_mode(), 60))
    plan = decide(with_end(seen, 1, code=3, message=words(seen, 1, code=3)))
    assert cause(plan) == (Reason.TRAINER_FAILED, Charge.USER, RestartKind.IN_PLACE)
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.through_store, "the next attempt begins in the same way"
    assert plan.status.current.culprit is not None
    assert plan.status.current.culprit.exit_code == 3


def test_a_container_that_ends_without_words_is_seen_though_it_runs_again() -> None:
    seen = alive(later(in_store_mode(), 60))
    plan = decide(with_end(seen, 1, code=137))
    assert cause(plan)[0] == Reason.TRAINER_SIGNALED


def test_words_of_an_older_attempt_say_nothing_of_this_one() -> None:
    seen = alive(later(in_store_mode(), 60))
    old = words(seen, 1, code=3, attempt=0)
    text = old.replace('"trainer":{"state":"exited","attempt":1', '"trainer":{"attempt":0')
    plan = decide(with_end(seen, 1, code=3, message=text))
    assert plan.status is None or plan.status.attempt == 1


@pytest.mark.parametrize("message", ["", "{", "{}", "killed", '{"podUID": 7}'])
def test_other_words_are_no_report(message: str) -> None:
    seen = with_end(running(), 1, code=3, message=message)
    assert last_words_of(pod_of(seen, 1)) is None


def test_another_pods_words_are_no_report() -> None:
    seen = running()
    foreign = with_end(seen, 1, code=3, message=words(seen, 0, code=3))
    assert last_words_of(pod_of(foreign, 1)) is None


def test_who_is_blamed_is_made_anew() -> None:
    seen = alive(later(in_store_mode(), 60))
    problem = wire.Problem(
        reason=Reason.PREPARE_FAILED, message="rank 1 has not stopped", since=seen.now, ranks=[1]
    )
    said = words(seen, 0, code=1, phase=SidecarPhase.FAILED, problem=problem)
    plan = decide(with_end(seen, 0, code=1, message=said))
    assert cause(plan) == (Reason.PREPARE_FAILED, Charge.CHECKPOINT, RestartKind.REPLACE)
    assert plan.status is not None
    assert plan.status.placements == [1, 2]


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_one_rank_that_was_let_go_with_0_proves_that_all_are_done(phase: str) -> None:
    seen = alive(later(in_store_mode(), 60))
    said = words(seen, 1, code=0, phase=SidecarPhase.DRAINED)
    end = ContainerEnd(exit_code=0, reason="Completed", message=said, finished_at=seen.now)
    done = with_pod(seen, 1, phase=phase, trainer=ContainerView(name="trainer", ended=end))
    assert decide(done).rule not in ("success", "fault"), "rank 0 knows the last save's name"
    plan = decide(alive(later(done, 11)))
    assert plan.rule == "success"
    assert plan.status is not None
    assert plan.status.is_true(ConditionType.COMPLETE)


@pytest.mark.parametrize(("by", "is_done"), [("c/{}", True), ("c/other", False)])
def test_a_run_that_this_very_job_finished_is_complete_whoever_could_not_tell(by, is_done) -> None:
    """All ranks' last words were lost with their nodes; the next attempt finds the outcome."""
    seen = alive(later(in_store_mode(), 60))
    assert seen.job is not None
    problem = wire.Problem(
        reason=Reason.RUN_ALREADY_COMPLETE, message="finished already", since=seen.now
    )
    said = words(
        seen,
        0,
        code=0,
        phase=SidecarPhase.FAILED,
        problem=problem,
        run_complete=True,
        completed_by=by.format(seen.job.uid),
    )
    plan = decide(with_end(seen, 0, code=1, message=said))
    assert plan.status is not None
    assert plan.status.is_true(ConditionType.COMPLETE) is is_done


@pytest.mark.parametrize(
    ("phase", "code", "message", "expected"),
    [
        ("Succeeded", 0, "released", True),
        ("Succeeded", 0, "abandoned", False),
        ("Succeeded", 0, None, False),
        ("Failed", 1, "released", False),
        ("Running", 0, "released", False),
    ],
)
def test_what_is_released(phase, code, message, expected) -> None:
    seen = running()
    end = ContainerEnd(exit_code=code, message=message)
    pod = pod_of(
        with_pod(seen, 0, phase=phase, trainer=ContainerView(name="trainer", ended=end)), 0
    )
    assert is_released(pod) is expected


def test_a_start_waits_for_a_sign_of_life_from_every_node() -> None:
    """What died with its node must not be charged to who noticed first."""
    seen = alive(later(in_store_mode(), 60))
    seen = with_end(seen, 1, code=1, message=words(seen, 1, code=1))
    seen = applied(seen, decide(seen))
    for action in decide(seen).actions:
        assert isinstance(action, PatchDirective)
        assert action.directive.phase == wire.Phase.PREPARE
        seen = with_pod(seen, action.directive.rank, directive=action.directive)
    assert decide(later(seen, 3)).rule != "let_go"
    node = pod_of(seen, 0).node
    assert node is not None
    half = later(seen, 8)
    renewed = replace(half.nodes[node], lease_renewed_at=half.now)
    assert decide(replace(half, nodes={**half.nodes, node: renewed})).rule != "let_go"
    plan = decide(alive(later(seen, 12)))
    assert plan.rule == "let_go"
    assert plan.status is not None
    assert (plan.status.starts, plan.status.restarts) == (2, 1)
    assert plan.status.resume is not None
    assert plan.status.resume.through_store
    assert plan.status.resume.name is None


def ready_to_go() -> tuple[Observed, PodView]:
    """Rank 1's pod was made anew and all of attempt 2 waits for the go; and that older pod, whose
    trainer's container runs, as it would be seen while it is being ended."""
    seen = alive(later(in_store_mode(fenced_directory=True), 60))
    old = pod_of(seen, 1)
    seen = applied(with_end(seen, 1, code=1), decide(with_end(seen, 1, code=1)))
    seen = with_pod(seen, 1, name=old.name.replace("-1-1-", "-1-2-"), uid="new", made_in=2)
    seen = with_pod(seen, 1, trainer=ContainerView(name="trainer", running=True))
    assert seen.job is not None
    status = seen.job.status.model_copy(update={"placements": [1, 2], "older_writers": [0, 1]})
    seen = alive(later(with_job(seen, status=status), 12))
    ending = {"deleting_since": seen.now - 1, "deletion_deadline": seen.now + 40}
    return seen, replace(old, **ending)


def test_a_start_waits_for_an_older_pod_that_may_still_save() -> None:
    seen, old = ready_to_go()
    assert decide(seen).rule == "let_go"
    ending = replace(seen, pods=(*seen.pods, old))
    assert decide(ending).rule != "let_go", "a save of its grace would be left behind"
    assert decide(alive(later(ending, 41))).rule == "let_go", "the wait has its end"


def test_a_start_waits_for_an_older_writer_that_is_given_its_grace() -> None:
    seen, old = ready_to_go()
    heard = ReportView(report=None, received_at=None, connected=True, last_contact=seen.now)
    ending = replace(seen, pods=(*seen.pods, old), reports={**seen.reports, old.uid: heard})
    assert decide(ending).rule != "let_go"
    assert decide(alive(later(ending, 41))).rule == "let_go"


def test_a_start_that_failed_early_leaves_a_fresh_beginning_wanted() -> None:
    fresh = JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1", on_existing_run="Fresh")
    world = World(spec=fresh, deaf=True)
    Operator(world).run_until(lambda: world.state.is_started)
    seen = world.observe()
    for number in ("1", "2"):
        assert seen.job is not None
        before = seen.job.status.current
        assert before is not None
        assert before.wanted is not None
        request = wire.Request(id=number, action=wire.RequestAction.RESTART)
        seen = with_job(seen, request=request)
        seen = applied(seen, decide(seen))
        assert seen.job is not None
        current = seen.job.status.current
        assert current is not None
        assert current.attempt == before.attempt + 1
        assert current.wanted == before.wanted
    told = seen.job.status.beginnings.model_copy(update={"acted": [before.wanted.asked]})
    done = with_job(seen, status=seen.job.status.model_copy(update={"beginnings": told}))
    plan = decide(with_job(done, request=request.model_copy(update={"id": "3"})))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.wanted is None, "it acts once"


def test_it_is_left_before_a_start_when_all_are_heard_again() -> None:
    world = World(spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1"), deaf=True)
    operator = Operator(world)
    operator.run_until(
        lambda: world.state.current is not None and world.state.current.through_store
    )
    seen = world.observe()
    assert seen.job is not None
    status = seen.job.status
    assert status.current is not None
    waits = status.current.model_copy(update={"not_before": seen.now + 100})
    held_back = status.model_copy(update={"current": waits, "resume": None, "starts": 0})
    seen = with_job(seen, status=held_back)
    for rank in (0, 1):
        seen = with_view(seen, rank, connected=True, last_contact=seen.now)
    plan = decide(seen)
    assert plan.rule == "store_mode"
    assert plan.status is not None
    assert plan.status.current is not None
    assert not plan.status.current.through_store


def test_a_hang_that_rank_0_has_found_is_healed_in_place_on_the_jobs_budget() -> None:
    """Its container's last words say so; what hangs elsewhere is ended by the next prepare."""
    seen = in_store_mode()
    told = wire.Problem(
        reason=Reason.TRAINER_HUNG,
        message="rank 1 hung: no step, no line and no moving save of any rank for 30 s",
        since=seen.now - 1,
    )
    said = words(seen, 0, code=-9, phase=SidecarPhase.FAILED, problem=told)
    seen = later(with_end(seen, 0, code=137, message=said), 2)
    plan = decide(seen)
    assert cause(plan) == (Reason.TRAINER_HUNG, Charge.USER, RestartKind.IN_PLACE)
    assert plan.status is not None
    assert plan.status.current is not None
    assert "rank 1 hung" in plan.status.current.message
