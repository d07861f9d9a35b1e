"""What is shown of a job: every story of the simulation, told by each view."""

from __future__ import annotations

import json
from functools import cache

import pytest
from kit import scenarios
from kit.scenarios import SCENARIOS
from kit.scenarios_of_leaving import LEAVINGS
from kit.scenarios_of_scaling import SCALINGS
from kit.scenarios_of_spares import SPARES
from kit.scenarios_of_trouble import TROUBLES
from kit.simulated import World
from kit.simulated_operator import Operator
from kit.stub_kubectl import job_of
from rtj_cli.jobs import Seen, seen
from rtj_cli.views import describing, listing, screen, timeline, why
from rtj_cli.views.words import span
from rtj_cli.waiting import Outcome, goal_of, outcome
from rtj_operator.core.observed import JobSpec

STORIES = {**SCENARIOS, **SPARES, **TROUBLES, **LEAVINGS, **SCALINGS}


@cache
def story(name: str) -> tuple[Seen, float]:
    world = STORIES[name].run().world
    return seen(job_of(world.state, suspend=world.spec.suspend)), world.now


@pytest.mark.parametrize("name", STORIES)
def test_every_story_is_told_whole(name: str) -> None:
    job, now = story(name)
    told = why.explain(job, now=now)
    assert 1 <= len(told.lines()) <= 10
    assert job.full_name in told.headline
    everything = [
        *told.lines(),
        *describing.lines(job, now=now),
        *screen.lines(job, pods=(), now=now),
    ]
    for line in everything:
        assert "None" not in line, line
        assert "(step None)" not in line
    rows = timeline.rows(job, now=now)
    assert [row["attempt"] for row in rows] == [each.attempt for each in job.status.attempts]
    drawn = "\n".join(timeline.lines(job, now=now))
    for record in job.status.attempts:
        assert f"#{record.attempt} " in drawn
        assert record.cause in drawn
    json.dumps([listing.row(job), *rows])


def test_a_crash_is_blamed_on_its_rank() -> None:
    job, now = story("crash_in_place")
    text = "\n".join(why.explain(job, now=now).lines())
    assert "trains: attempt 2, step 17" in text
    assert "rank 1 on node1, exit code 137" in text
    assert f"it started from {job.status.resume.name} (step 8)" in text
    drawn = "\n".join(timeline.lines(job, now=now))
    assert (
        "#2   01-01 00:16:52Z  InPlace   TrainerSignaled (rank 1 on node1, exit code 137)" in drawn
    )
    assert "step 8 → 17" in drawn
    assert "1 step again" in drawn
    assert "1.5s to work: detect 0.2s start 0.2s warm-up 1s" in drawn


def test_a_held_job_names_the_reason_and_the_way_out() -> None:
    op = Operator(World(spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1")))
    scenarios.trains(op, step=8)
    for save in list(op.world.store.saves):
        op.world.corrupt(save.name)
    for pod in op.world.pods.values():
        pod.pinned.clear()
    op.world.kill_trainer(1, code=1)
    scenarios.reaches(op, scenarios.JobPhase.HELD)
    job = seen(job_of(op.world.state))
    told = why.explain(job, now=op.world.now)
    assert "is held: NoValidCheckpoint" in told.headline
    assert "rtj allow-scratch ns/gpt" in "\n".join(told.next)
    assert outcome(job, goal_of("held")) is Outcome.THERE
    assert outcome(job, goal_of("Complete")) is Outcome.NOT_YET


def test_spares_are_shown() -> None:
    told = [
        (job, "\n".join(describing.lines(job, now=now)))
        for job, now in map(story, SPARES)
        if job.status.spares is not None
    ]
    assert told
    for job, text in told:
        spares = job.status.spares
        assert spares is not None
        assert f"spares     {spares.ready} of {spares.wanted} ready" in text
        assert listing.row(job)["spares"] == f"{spares.ready}/{spares.wanted}"
    assert any("is played by spare" in text for _, text in told)


def test_a_gang_that_is_short_of_ranks_says_so() -> None:
    told = [(job, now) for job, now in map(story, SCALINGS) if job.status.elastic is not None]
    assert told
    for job, now in told:
        gang = job.status.elastic
        assert gang is not None
        text = "\n".join(describing.lines(job, now=now))
        assert f"elastic    {gang.size} of {gang.wanted} ranks" in text
        assert listing.row(job)["size"] == gang.size
    short = [(job, now) for job, now in told if job.status.elastic.size < job.status.elastic.wanted]
    assert short
    for job, now in short:
        gang = job.status.elastic
        evidence = "\n".join(why.explain(job, now=now).evidence)
        assert f"it trains with {gang.size} of {gang.wanted} ranks: {gang.reason}" in evidence


def test_a_pod_that_finds_no_node_is_named() -> None:
    job, now = story("first_start")
    unplaced = {
        "metadata": {"name": "gpt-1-1-abcd", "labels": {}},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "message": "0/3 nodes: Insufficient gpu",
                }
            ]
        },
    }
    unpulled = {
        "metadata": {"name": "gpt-0-1-abcd", "labels": {}},
        "status": {
            "containerStatuses": [
                {"name": "trainer", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
            ]
        },
    }
    text = "\n".join(why.explain(job, pods=(unplaced, unplaced, unpulled), now=now).evidence)
    assert "gpt-1-1-abcd and 1 more: not placed: 0/3 nodes: Insufficient gpu" in text
    assert "gpt-0-1-abcd: trainer waits: ImagePullBackOff" in text


def test_a_job_that_no_operator_saw() -> None:
    told = why.explain(seen(job_of(None)), now=1100.0)
    assert "not been looked at" in told.headline
    told = why.explain(seen(job_of(None, managedBy="other.dev/manager")), now=1100.0)
    assert "left to another manager" in told.headline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.44, "0.4s"), (12.4, "12s"), (184, "3m04s"), (7500, "2h05m"), (273600, "3d04h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize("text", ["", "Durable", "Running=3", "Gone", "Step=-1", "Step=x"])
def test_goals_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="Durable=STEP"):
        goal_of(text)


def test_goals() -> None:
    job, _ = story("crash_in_place")
    for text in ("running", "Durable=16", "Step=17", "Attempt=2"):
        assert outcome(job, goal_of(text)) is Outcome.THERE
    for text in ("Durable=17", "Step=99", "Attempt=3", "Suspended", "Failed"):
        assert outcome(job, goal_of(text)) is Outcome.NOT_YET
    ended, _ = story("runs_to_the_end")
    assert outcome(ended, goal_of("Complete")) is Outcome.THERE
    assert outcome(ended, goal_of("Durable=999")) is Outcome.GONE
