"""A lost pod that may still write a directory which other nodes reach: who is waited for, and what
ends the wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.observations import (
    applied,
    later,
    pod_of,
    running,
    with_pod,
    with_report,
)
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, NodeView, Observed, PodView
from rtj_operator.core.plan import PatchDirective

SHARED = {"shared_directory": True, "fenced_directory": True}
BY_RANK = {"fenced_directory": True}


def replaced(**spec: bool) -> tuple[Observed, PodView]:
    """Rank 1's node vanished: attempt 2 is recorded, its new pod is there, the old one is not."""
    seen = running(**spec)
    old = pod_of(seen, 1)
    gone = with_pod(seen, 1, deleting_since=seen.now)
    plan = decide(gone)
    assert plan.rule == "fault"
    now = applied(gone, plan)
    assert now.job is not None
    assert now.job.status.placements == [1, 2]
    name = old.name.replace("-1-1-", "-1-2-")
    new = replace(old, name=name, uid="new", made_in=2, deleting_since=None, directive=None)
    report = seen.reports[old.uid].report
    assert report is not None
    fresh = report.model_copy(update={"pod_uid": "new", "trainer": wire.TrainerView()})
    view = replace(seen.reports[old.uid], report=fresh)
    pods = tuple(p for p in now.pods if p.rank != 1)
    return replace(
        now, pods=(*pods, new), reports={**seen.reports, "new": view}, nodes=seen.nodes
    ), replace(old, deleting_since=seen.now)


def prepared(
    seen: Observed,
    *,
    settled: bool = False,
    followed: str | None = None,
    by: tuple[int, ...] = (0,),
) -> Observed:
    """Every rank has prepared attempt 2; those in `by` wrote it to their directory's fence."""
    for rank in (0, 1):
        fence = wire.DirectoryFence(attempt=2, settled=settled, followed=followed)

        def change(
            report: wire.Report, *, own: wire.DirectoryFence | None = fence if rank in by else None
        ) -> wire.Report:
            return report.model_copy(
                update={
                    "attempt": 2,
                    "seq": 1,
                    "phase": wire.SidecarPhase.PREPARED,
                    "listed": True,
                    "directory": own,
                    "trainer": report.trainer.model_copy(
                        update={"state": wire.TrainerState.EXITED}
                    ),
                }
            )

        seen = with_report(seen, rank, change)
    return replace(seen, now=seen.now + 1)


def told(seen: Observed) -> Observed:
    """The same, with the directives given that are wanted."""
    while (plan := decide(seen)).rule == "converge":
        patches = [a for a in plan.actions if isinstance(a, PatchDirective)]
        if not patches:
            break
        for patch in patches:
            seen = replace(
                seen,
                pods=tuple(
                    replace(p, directive=patch.directive) if p.name == patch.pod else p
                    for p in seen.pods
                ),
            )
    return seen


def chooses(seen: Observed) -> bool:
    """Whether the attempt passes the point of no return."""
    return decide(told(seen)).rule == "choose"


def test_without_such_a_directory_nobody_is_waited_for() -> None:
    seen, _ = replaced()
    assert chooses(prepared(seen))


@pytest.mark.parametrize("spec", [SHARED, BY_RANK])
def test_a_pod_that_vanished_is_waited_for_until_it_must_have_stopped_itself(spec) -> None:
    seen, _ = replaced(**spec)
    assert seen.job is not None
    assert seen.job.status.older_writers == [0, 1]
    by = (0,) if "shared_directory" in spec else (0, 1)
    assert not chooses(prepared(seen, by=by))
    assert chooses(prepared(seen, settled=True, by=by))


def test_a_fence_of_another_ranks_own_directory_proves_nothing() -> None:
    seen, _ = replaced(**BY_RANK)
    waiting = prepared(seen, settled=True, by=(0, 1))

    def unsettled(report: wire.Report) -> wire.Report:
        return report.model_copy(update={"directory": wire.DirectoryFence(attempt=2)})

    assert not chooses(with_report(waiting, 1, unsettled))


def test_the_condition_says_who_is_waited_for_and_what_ends_it() -> None:
    seen, old = replaced(**SHARED)
    plan = decide(told(prepared(seen)))
    assert plan.status is not None
    running_ = plan.status.condition(ConditionType.RUNNING)
    assert running_ is not None
    assert running_.reason == Reason.AWAITING_OLDER_WRITER
    assert old.name in running_.message
    assert "out-of-service" in running_.message


def end() -> ContainerEnd:
    return ContainerEnd(exit_code=137)


PROOFS = {
    "the kubelet says that the pod is over": lambda pod: replace(pod, phase="Failed"),
    "the kubelet says that the container is over": lambda pod: replace(
        pod, trainer=replace(pod.trainer, running=False, ended=end())
    ),
}


@pytest.mark.parametrize("proof", PROOFS)
def test_what_the_kubelet_says_of_the_old_pod_ends_the_wait(proof: str) -> None:
    seen, old = replaced(**SHARED)
    waiting = unheard(prepared(replace(seen, pods=(*seen.pods, old))), old)
    assert not chooses(waiting)
    ended = PROOFS[proof](old)
    assert chooses(replace(waiting, pods=(*seen_pods(waiting, old), ended)))


def unheard(seen: Observed, old: PodView) -> Observed:
    return replace(seen, reports={k: v for k, v in seen.reports.items() if k != old.uid})


def seen_pods(seen: Observed, old: PodView) -> tuple[PodView, ...]:
    return tuple(p for p in seen.pods if p.uid != old.uid)


@pytest.mark.parametrize(
    "node",
    [
        NodeView(name="n", exists=False),
        NodeView(name="n", taints=("node.kubernetes.io/out-of-service:NoExecute",)),
    ],
)
def test_a_person_who_says_that_the_node_is_off_ends_the_wait(node: NodeView) -> None:
    seen, old = replaced(**SHARED)
    lost = replace(old, node="n")
    waiting = unheard(prepared(replace(seen, pods=(*seen.pods, lost))), old)
    assert not chooses(replace(waiting, nodes={**seen.nodes, "n": NodeView(name="n", ready=None)}))
    assert chooses(replace(waiting, nodes={**seen.nodes, "n": node}))


def test_the_old_sidecars_word_ends_the_wait_only_for_its_last_go() -> None:
    seen, old = replaced(**SHARED)
    waiting = prepared(replace(seen, pods=(*seen.pods, old)))
    view = waiting.reports[old.uid]
    assert view.report is not None

    def said(**fields: object) -> Observed:
        assert view.report is not None
        trainer = view.report.trainer.model_copy(
            update={"state": wire.TrainerState.EXITED, "attempt": 1} | fields
        )
        report = view.report.model_copy(
            update={"trainer": trainer, "phase": wire.SidecarPhase.EXITED}
        )
        return replace(waiting, reports={**waiting.reports, old.uid: replace(view, report=report)})

    assert chooses(said())
    assert not chooses(said(state=wire.TrainerState.RUNNING))
    assert not chooses(said(attempt=0)), "the trainer of an attempt before"


def test_a_proof_is_remembered_when_the_pods_object_is_gone() -> None:
    seen, old = replaced(**SHARED)
    ended = replace(old, phase="Failed")
    # Before rank 0 has prepared: nothing is chosen, and what was seen is written.
    plan = decide(told(replace(seen, pods=(*seen.pods, ended))))
    assert plan.status is not None
    assert plan.status.older_writers == []
    assert chooses(prepared(applied(seen, plan)))


def test_a_pod_that_never_trained_is_nobody_to_wait_for() -> None:
    seen, _ = replaced(**SHARED)
    # The new pod vanishes before the start: attempt 3, and still only the first pod is meant.
    lost = decide(with_pod(seen, 1, deleting_since=seen.now))
    assert lost.rule == "fault"
    assert lost.status is not None
    assert lost.status.placements == [1, 3]
    assert lost.status.older_writers == [0, 1]


def test_another_jobs_pods_are_waited_for_where_it_had_the_directory() -> None:
    seen, _ = replaced(**SHARED)
    assert seen.job is not None
    clean = seen.job.status.model_copy(update={"older_writers": []})
    seen = replace(seen, job=replace(seen.job, status=clean))
    assert chooses(prepared(seen))
    assert not chooses(prepared(seen, followed="c/other"))
    assert chooses(prepared(seen, followed="c/other", settled=True))


def test_the_fence_is_not_written_while_an_old_pod_has_its_grace() -> None:
    seen, old = replaced(**SHARED)

    def patched(at: Observed) -> set[int]:
        plan = decide(at)
        return {a.directive.rank for a in plan.actions if isinstance(a, PatchDirective)}

    heard = replace(seen, pods=(*seen.pods, old))
    assert patched(heard) == {1}
    assert patched(later(heard, 31)) == {0, 1}
    assert patched(seen) == {0, 1}


def test_beside_sidecars_that_do_not_fence_the_wait_has_an_end() -> None:
    seen, _ = replaced(**SHARED)
    old_version = prepared(seen, by=())
    assert not chooses(old_version)
    assert chooses(later(old_version, 61))
