"""The loop when the API server or a decision errs: it looks again and writes nothing twice."""

from __future__ import annotations

import pytest
from kit.loop import EMPTY, create, deciding, pod_name, script, turn
from rtj_api import contract, wire
from rtj_api.status import Status
from rtj_operator.core.decide import decide as rules
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import Plan
from rtj_operator.shell.api import ApiError


async def test_a_refused_manifest_is_remembered_until_the_spec_changes(
    cluster, raw_job, make_app
) -> None:
    job = cluster.add_job(raw_job())
    uid = job["metadata"]["uid"]

    def refuse(call: str) -> None:
        if call == "create_pod":
            raise ApiError(status=422, reason="Invalid", message="image: Required value")

    cluster.fail = refuse
    seen: list[Observed] = []

    def look(observed: Observed) -> Plan:
        seen.append(observed)
        return EMPTY

    plan = Plan(rule="Make", why="", actions=(create(0, uid),))
    app = make_app(script(plan, look, look))
    await turn(app)
    rejection = seen[-1].rejections[pod_name(0, uid)]
    assert (rejection.code, rejection.message) == (422, "image: Required value")
    assert app.queue.counters.retries == 0
    job["metadata"]["generation"] = 2
    await turn(app)
    assert not seen[-1].rejections


async def test_a_conflict_looks_again_soon_and_writes_nothing_twice(
    cluster, raw_job, make_app
) -> None:
    cluster.add_job(raw_job())

    def stale(observed: Observed) -> Plan:
        cluster.jobs["team", "gpt"]["metadata"]["resourceVersion"] = "moved"
        return deciding(Status(attempt=9))

    app = make_app(script(stale))
    delay = await turn(app)
    assert delay is not None
    assert delay <= 0.05
    assert "status" not in cluster.jobs["team", "gpt"]
    outcome = app.metrics.registry.get_sample_value(
        "resumable_training_operator_handler_runs_total",
        {"handler": "reconcile", "result": "conflict"},
    )
    assert outcome == 1


async def test_a_server_error_backs_off_and_obeys_retry_after(cluster, raw_job, make_app) -> None:
    cluster.add_job(raw_job())

    def busy(call: str) -> None:
        raise ApiError(status=429, reason="TooManyRequests", message="slow down", retry_after=3)

    cluster.fail = busy
    delay = await turn(make_app(script()))
    assert delay == pytest.approx(3, abs=0.5)


async def test_a_defect_in_a_decision_ends_only_that_pass(cluster, raw_job, make_app) -> None:
    cluster.add_job(raw_job())

    def broken(_: Observed) -> Plan:
        raise RuntimeError("a defect")

    app = make_app(script(broken))
    delay = await turn(app)
    assert delay == pytest.approx(5, abs=0.5)
    assert app.queue.longest_active_seconds() == 0


async def test_a_decision_that_never_settles_does_not_spin(cluster, raw_job, make_app) -> None:
    cluster.add_job(raw_job())
    attempts = iter(range(1000))

    def restless(_: Observed) -> Plan:
        return deciding(Status(attempt=next(attempts)))

    delay = await turn(make_app(restless))
    assert delay is not None
    assert 0.1 < delay < 1


WRITES = ("put_status", "create_pod", "delete_pod", "annotate_pod")


@pytest.mark.parametrize("after_it_was_done", [False, True])
@pytest.mark.parametrize("number", range(6))
async def test_an_error_at_any_write_leads_to_the_same_end(
    cluster, raw_job, make_app, number: int, after_it_was_done: bool
) -> None:
    """With the real rules: the write number `number` fails, or is done and its answer is lost;
    and the operator that saw it is gone: another one goes on."""
    cluster.add_job(raw_job(replicas=3))
    left = number

    def fail(call: str) -> None:
        nonlocal left
        if call in WRITES:
            left -= 1
            if left == -1:
                raise ApiError(status=500, message="the connection broke")

    if after_it_was_done:
        cluster.fail_after = fail
    else:
        cluster.fail = fail
    for _ in range(4):
        await turn(make_app(rules))
    assert left < 0, "fewer writes than this test is about"
    status = cluster.jobs["team", "gpt"]["status"]
    assert (status["attempt"], status["starts"]) == (1, 0)
    assert len(cluster.pods) == 3
    for pod in cluster.pods.values():
        order = wire.Directive.model_validate_json(
            pod["metadata"]["annotations"][contract.ANNOTATION_DIRECTIVE]
        )
        assert (order.attempt, order.phase) == (1, wire.Phase.PREPARE)
