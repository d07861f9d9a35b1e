"""An elastic gang in status, in the words that a person reads, and what it must not do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.observations import with_job, with_report
from kit.scenarios import recovers, state, trains
from kit.scenarios_of_scaling import SMALL, give_back, has_size, only, saved_since, take_away
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, ElasticStatus, JobPhase, WantedBeginning
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import JobSpec, Observed, Rejection
from rtj_operator.core.policy import Policy
from rtj_operator.core.sizes import next_elastic


def begun(*, world: dict[str, Any] | None = None, **spec: Any) -> Operator:
    """Three ranks on the only three nodes, with a durable step."""
    fields = {"replicas": 3, "elastic": SMALL, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    op = Operator(World(spec=JobSpec(**fields), **(world or {})))
    only(op, 3)
    trains(op, step=4)
    return op


def about_to_shrink(*, lost: int) -> Observed:
    """What the operator sees the moment before it makes the gang smaller."""
    op = begun()
    take_away(op, lost)
    op.run_until(lambda: state(op).attempt == 2)
    op.run(3)
    return slept_until_it_shrinks(op)


def slept_until_it_shrinks(op: Operator) -> Observed:
    for _ in range(40):
        if decide(op.world.observe()).rule == "shrink":
            break
        op.world.tick()
    observed = op.world.observe()
    assert decide(observed).rule == "shrink"
    return observed


def saving(report: wire.Report) -> wire.Report:
    checkpoint = report.checkpoint.model_copy(update={"pending_saves": 1})
    return report.model_copy(update={"checkpoint": checkpoint})


def degraded(op: Operator) -> tuple[str, str]:
    found = state(op).condition(ConditionType.DEGRADED)
    assert found is not None
    return found.reason, found.message


def is_degraded(op: Operator, reason: Reason) -> Callable[[], bool]:
    return lambda: degraded(op)[0] == reason


def test_a_small_gang_says_its_size_why_and_what_it_waits_for() -> None:
    op = begun()
    assert degraded(op)[0] == Reason.NOTHING_DEGRADED
    node = take_away(op, 2)
    has_size(op, 2)
    op.run(3)
    shown = state(op).elastic
    assert shown is not None
    assert (shown.size, shown.wanted, shown.reason) == (2, 3, Reason.SCALED_DOWN)
    assert (shown.gradient_accumulation, shown.global_batch) == (3, 12)
    reason, text = degraded(op)
    assert reason == Reason.SCALED_DOWN
    assert text.startswith("2 of 3 pods train. 1 of 3 pods found no place for 5 s: 0/4 nodes")
    assert "It grows when there is room: status.spares says what is waited for" in text
    spares = state(op).spares
    assert spares is not None
    assert (spares.wanted, spares.ready) == (1, 0)
    assert "0/4 nodes are available" in (spares.message or "")
    give_back(op, node)
    has_size(op, 3)
    op.run(3)
    assert degraded(op)[0] == Reason.NOTHING_DEGRADED
    assert state(op).spares is None


def test_neither_way_costs_the_user_anything() -> None:
    op = begun(max_restarts=0)
    node = take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    has_size(op, 3)
    assert state(op).failures == 0
    assert state(op).budgets.restarts_since_progress == 0
    assert [r.cause for r in state(op).attempts] == [
        Reason.FIRST_START,
        Reason.POD_DELETED,
        Reason.SCALED_DOWN,
        Reason.SCALED_UP,
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"world": {"layout": "deepspeed"}}, "a deepspeed save fits the number of ranks"),
        (
            {"elastic": replace(SMALL, sizes=(3,))},
            "only 2 of 3 pods have a place, and the allowed sizes are 3",
        ),
    ],
)
def test_where_no_smaller_gang_can_go_on_it_waits_and_says_why(
    fields: dict[str, Any], words: str
) -> None:
    op = begun(**fields)
    node = take_away(op, 2)
    op.run_until(is_degraded(op, Reason.CANNOT_SCALE_DOWN))
    assert "ranks [2] find no place, and no smaller gang can go on" in degraded(op)[1]
    assert words in degraded(op)[1]
    op.run(60)
    assert len(state(op).placements) == 3
    give_back(op, node)
    recovers(op, attempt=2)
    assert degraded(op)[0] == Reason.NOTHING_DEGRADED


def test_the_layout_is_told_of_before_a_rank_is_lost() -> None:
    op = begun(world={"layout": "deepspeed"})
    assert "a deepspeed save fits" in (state(op).checkpoint.fixed_size or "")
    assert begun().world.state.checkpoint.fixed_size is None


def test_a_save_on_its_way_is_waited_for_before_its_pod_goes() -> None:
    """Rank 1 is lost, so rank 2 gives its place up: not while it has a save of its own."""
    observed = about_to_shrink(lost=1)
    assert decide(with_report(observed, 2, saving)).rule != "shrink"
    assert decide(with_report(observed, 0, saving)).rule == "shrink", "it keeps its pod"


def test_an_operator_that_is_back_asks_for_such_a_save_before_its_pod_goes() -> None:
    observed = about_to_shrink(lost=1)
    name = next(p for p in observed.pods if p.rank == 2 and p.deleting_since is None)
    unheard = replace(observed.reports[name.uid], report=None, polled_since=observed.now)
    seen = replace(observed, reports={**observed.reports, name.uid: unheard})
    assert decide(seen).rule != "shrink"


def test_a_save_that_only_the_lost_rank_zero_could_commit_is_not_waited_for() -> None:
    """It gets a place by no other way: the wait would have no end."""
    observed = about_to_shrink(lost=0)
    assert decide(with_report(observed, 2, saving)).rule == "shrink"


def test_a_quota_is_no_place_either() -> None:
    op = begun()
    op.world.delete_pod(op.world.pod_of(2).name)
    op.run_until(lambda: state(op).attempt == 2)
    observed = op.world.observe()
    name = "gpt-2-2-abcd"
    message = f'pods "{name}" is forbidden: exceeded quota: gpus, requested: 1, used: 3, limited: 3'
    pods = tuple(p for p in observed.pods if p.name != name and p.deleting_since is None)
    refused = {name: Rejection(code=403, message=message, at=observed.now + 5)}
    later = replace(observed, pods=pods, rejections=refused, now=observed.now + 6)
    plan = decide(later)
    assert plan.rule == "shrink"
    assert "Raise ResourceQuota gpus" in plan.why
    assert later.job is not None
    current = later.job.status.current
    assert current is not None
    backed_off = current.model_copy(update={"not_before": later.now - 1})
    status = later.job.status.model_copy(update={"current": backed_off})
    assert decide(with_job(later, status=status)).rule != "shrink", "it was not tried before"


def test_it_never_grows_where_that_is_not_wished() -> None:
    op = begun(elastic=replace(SMALL, grows=False))
    node = take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    op.run(60)
    assert len(state(op).placements) == 2
    assert state(op).spares is None
    assert "elastic.growWhen is Never: suspend and resume the job" in degraded(op)[1]


def test_the_room_may_go_again_before_the_save() -> None:
    op = begun(world={"save_every": 20})
    node = take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    op.run_until(lambda: (e := state(op).elastic) is not None and e.growing is not None)
    spare = op.world.spare()
    assert spare is not None
    op.world.nodes[node].taints = ("away:NoSchedule",)
    op.world.delete_pod(spare.name)
    op.run_until(lambda: (e := state(op).elastic) is not None and e.growing is None)
    attempt = state(op).attempt
    op.run(40)
    assert state(op).attempt == attempt, "nobody was disturbed"


def test_without_elastic_the_next_restart_is_with_all() -> None:
    op = begun()
    node = take_away(op, 2)
    has_size(op, 2)
    op.world.change_spec(elastic=None)
    op.run(5)
    assert "spec.elastic was removed: the next restart is with all of them" in degraded(op)[1]
    give_back(op, node)
    op.world.kill_trainer(0, code=-9)
    op.run_until(lambda: len(state(op).placements) == 3)
    recovers(op, attempt=state(op).attempt)
    assert state(op).elastic is None


def test_the_first_start_waits_until_the_runs_saves_are_known() -> None:
    """Those of an older job may fit three ranks only, and the smaller gang would be held."""
    fields = {"replicas": 3, "elastic": SMALL, "run_id": "ns/gpt", "template_hash": "h1"}
    op = Operator(World(spec=JobSpec(**fields)))
    only(op, 2)
    op.run(3)
    observed = slept_until_it_shrinks(op)

    def unlisted(report: wire.Report) -> wire.Report:
        return report.model_copy(update={"listed": False, "candidates": []})

    assert decide(with_report(observed, 0, unlisted)).rule != "shrink"


@pytest.mark.parametrize(
    ("layout", "shrinks"), [(None, False), ("deepspeed", False), ("dcp", True)]
)
def test_what_a_person_asked_to_begin_from_has_to_suit_the_smaller_gang(
    layout: str | None, shrinks: bool
) -> None:
    fields = {"replicas": 3, "elastic": SMALL, "run_id": "ns/gpt", "template_hash": "h1"}
    op = Operator(World(spec=JobSpec(**fields)))
    only(op, 2)
    op.run(3)
    observed = slept_until_it_shrinks(op)
    assert observed.job is not None
    assert observed.job.spec is not None
    asked = "ns/other/f1-n1-s5"
    status = observed.job.status
    assert status.current is not None
    current = status.current.model_copy(
        update={"wanted": WantedBeginning(value=asked, asked=asked)}
    )
    observed = with_job(
        observed,
        spec=replace(observed.job.spec, resume_from=asked),
        status=status.model_copy(update={"current": current}),
    )

    def found(report: wire.Report) -> wire.Report:
        save = wire.Candidate(name="f1-n1-s5", durable=True, layout=layout, needs=[0, 1, 2])
        told = wire.Found(asked=asked, save=save) if layout is not None else None
        return report.model_copy(update={"found": told})

    assert (decide(with_report(observed, 0, found)).rule == "shrink") is shrinks


def small_and_fixed() -> Operator:
    """It began with two ranks, and what they save fits two ranks only."""
    fields = {"replicas": 3, "elastic": SMALL, "run_id": "ns/gpt", "template_hash": "h1"}
    op = Operator(World(spec=JobSpec(**fields), layout="deepspeed"))
    only(op, 2)
    has_size(op, 2)
    saved_since(op)
    return op


def test_a_gang_whose_save_fits_its_size_only_does_not_grow() -> None:
    """The larger gang could not load it, and would be held for good."""
    op = small_and_fixed()
    only(op, 3)
    op.run(60)
    assert len(state(op).placements) == 2
    assert state(op).attempt == 2, "nobody was disturbed"
    assert state(op).spares is None
    assert "It does not grow: a deepspeed save fits the number" in degraded(op)[1]


def test_it_comes_back_from_a_suspension_with_the_size_of_its_save() -> None:
    op = small_and_fixed()
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    only(op, 3)
    op.world.change_spec(suspend=False)
    has_size(op, 2)
    assert len(state(op).placements) == 2


def test_a_gang_that_comes_back_whole_waits_for_its_last_place_as_any() -> None:
    """It was suspended while small: nobody knows that two are enough now."""
    op = begun()
    take_away(op, 2)
    has_size(op, 2)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    op.world.change_spec(suspend=False, elastic=replace(SMALL, scale_down_after=60.0))
    op.run_until(lambda: state(op).hold is None)
    op.run(40)
    assert len(state(op).placements) == 3


def test_of_a_suspended_job_nobody_says_that_pods_train() -> None:
    op = begun()
    take_away(op, 2)
    has_size(op, 2)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    op.run(3)
    assert degraded(op)[0] == Reason.NOTHING_DEGRADED


def test_a_growth_that_is_undone_in_two_steps_has_failed_as_well() -> None:
    """Four ranks lose one place, then another: the pause before the next growth stays."""
    wish = replace(SMALL, full=4, sizes=(2, 3, 4), batch=None)
    grown = ElasticStatus(
        size=4, wanted=4, since=0.0, reason=Reason.SCALED_UP, unproved=5, failed_growths=1
    )
    fields = {"replicas": 4, "elastic": wish, "run_id": "ns/gpt", "template_hash": "h1"}
    world = World(spec=JobSpec(**fields))
    shown: ElasticStatus | None = grown
    for size in (3, 2):
        status = world.state.model_copy(update={"elastic": shown, "attempt": 6})
        gang = gather(world.observe(), policy=Policy(), alarm=Alarm(world.now), status=status)
        shown = next_elastic(gang, size=size, reason=Reason.SCALED_DOWN, message="no room")
        assert shown is not None
        assert shown.failed_growths == 2
        assert shown.not_before == world.now + 120.0
