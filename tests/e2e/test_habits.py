"""Saves as people make them: one script for each habit, each hurt once, all at the same time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.s3 import list_keys, read_object
from kit.stack import Stack
from kit.trainers.habits.work import expected

STEPS = 60
DISK = {"name": "disk", "emptyDir": {"medium": "Memory", "sizeLimit": "14Mi"}}  # ENOSPC is real


def kill(job: Job) -> None:
    job.kill_trainer(0)


def kill_all(job: Job) -> None:
    for rank in range(job.get()["spec"]["replicas"]):
        job.kill_trainer(rank)


def delete_last_pod(job: Job) -> None:
    """Drained and made anew: what it had on its disk is gone with it."""
    ranks = job.get()["spec"]["replicas"]
    job.kube.run("delete", "pod", job.pod_name(ranks - 1), "--wait=false")


@dataclass(frozen=True)
class Habit:
    script: str
    hurt: Callable[[Job], None]
    options: dict[str, Any] = field(default_factory=dict)
    beyond: int = 10  # the durable step at which it is hurt
    steps: int = STEPS
    seeds: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        return self.script.replace("_", "-")


HABITS = (
    Habit("in_place", kill),
    Habit("same_step", kill),
    Habit("best_and_last", delete_last_pod, {"resume_args": ()}),
    Habit("every_node", delete_last_pod, {"replicas": 2}, seeds=(0, 1000)),
    Habit("shards", kill_all, {"replicas": 2}, seeds=(0, 1000)),
    Habit("own_pointer", delete_last_pod, {"resume_args": ()}),
    Habit("final_model", kill, {"shell": "set -eu; exec TRAIN $(RTJ_RESUME_ARGS)"}),
    Habit("traps_sigterm", delete_last_pod),
    Habit(
        "never_rotates",
        kill,
        {
            "every": 2,
        },
        beyond=40,
    ),
    Habit("infinities", kill, {"torch": True}, steps=40),
)


def log_of(product: Stack, space: Kube, name: str, rank: int) -> str:
    """The tails of all attempts of a rank, from the store: they outlive the pods."""
    prefix = f"{space.namespace}/{space.namespace}/{name}/logs/"
    keys = [k for k in list_keys(product.s3, prefix=prefix) if k.endswith(f"/{rank}.txt")]
    keys.sort(key=lambda key: int(re.search(r"/logs/(\d+)/", key)[1]))  # type: ignore[index]
    return "\n".join(read_object(product.s3, key=key).decode() for key in keys)


def manifests_of(product: Stack, space: Kube, name: str) -> list[dict]:
    prefix = f"{space.namespace}/{space.namespace}/{name}/manifests/"
    found = [
        json.loads(read_object(product.s3, key=k)) for k in list_keys(product.s3, prefix=prefix)
    ]
    return sorted(found, key=lambda record: (record["fence"], record["n"]))


@pytest.mark.timeout(600)
def test_each_habit_resumes_right_or_is_stopped_with_the_right_words(
    product: Stack, space: Kube
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    jobs: dict[str, Job] = {}
    for habit in HABITS:
        made = manifests.habit(
            habit.name, habit.script, store=store, steps=habit.steps, **habit.options
        )
        if habit.script == "never_rotates":
            made["spec"]["template"]["spec"]["volumes"].append(DISK)
            mount = {"name": "disk", "mountPath": "/checkpoints"}
            manifests.trainer_of(made)["volumeMounts"].append(mount)
        space.apply(made)
        jobs[habit.name] = Job(kube=space, name=habit.name)
    space.apply(manifests.habit("ignores", "ignores_resume", store=store, steps=1000))
    ignores = Job(kube=space, name="ignores")

    resumed_from: dict[str, int] = {}
    waiting = {habit.name: habit for habit in HABITS} | {"ignores": Habit("ignores", kill)}
    told: dict[str, list[int]] = {}

    def hurt_those_that_are_due() -> bool:
        for name, habit in list(waiting.items()):
            job = jobs.get(name, ignores)
            durable = (job.status().get("checkpoint") or {}).get("lastDurableStep") or 0
            if durable >= habit.beyond:
                habit.hurt(job)
                told[name] = [durable]
                del waiting[name]
        return not waiting

    wait_for(hurt_those_that_are_due, within=240, what="every job hurt once")

    for habit in HABITS:
        job = jobs[habit.name]
        job.wait_phase("Succeeded", within=240)
        status = job.status()
        assert status["starts"] == 2, (habit.script, job.describe())
        resumed_from[habit.name] = status["resume"]["step"]
        # Nothing durable is lost, and the newest save is the last one.
        assert status["resume"]["step"] >= told[habit.name][0], habit.script
        assert status["checkpoint"]["lastDurableStep"] == habit.steps, habit.script
        for rank, seed in enumerate(habit.seeds):
            log = log_of(product, space, habit.name, rank)
            assert f"START {status['resume']['step']}\n" in log, (habit.script, log)
            if habit.script != "infinities":
                assert expected(habit.steps, seed=seed) in log, (habit.script, log[-2000:])

    # What it saved on the way out is what it went on from.
    log = log_of(product, space, "traps-sigterm", 0)
    at_the_end = re.search(r"SAVED AT THE END (\d+)", log)
    assert at_the_end is not None, log
    assert resumed_from["traps-sigterm"] == int(at_the_end[1])

    # `inf` and `-inf` condemned nothing.
    assert not jobs["infinities"].status()["checkpoint"].get("invalid")

    # A fresh start in place of a resume: stopped, told, and nothing was lost.
    status = ignores.wait_phase("Held", within=120)
    assert status["hold"]["reason"] == "CheckpointIgnored"
    assert "checkpoint.resumeArgs" in status["hold"]["message"]
    assert status["checkpoint"]["lastDurableStep"] >= told["ignores"][0]
    records = manifests_of(product, space, "ignores")
    assert {record["fence"] for record in records} == {1}, "it published what it made from 0"
