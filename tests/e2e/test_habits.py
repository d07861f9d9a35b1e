"""Saves as people make them: one script for each habit, each hurt once, some at the same time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube, KubectlError, wait_for
from kit.rtj import KIND, Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack
from kit.trainers.habits.work import expected

AT_ONCE = 5
DISK = {"name": "disk", "emptyDir": {"medium": "Memory", "sizeLimit": "14Mi"}}  # ENOSPC is real


def kill(job: Job) -> None:
    job.kill_trainer(0)


def delete_last_pod(job: Job) -> None:
    """Drained and made anew: what it had on its disk is gone with it."""
    ranks = job.get()["spec"]["replicas"]
    job.kube.run("delete", "pod", job.pod_name(ranks - 1), "--wait=false")


@dataclass(frozen=True)
class Habit:
    """It stalls at step 32 until it is hurt, when the save of step 30 is durable."""

    script: str
    hurt: Callable[[Job], None]
    options: dict[str, Any] = field(default_factory=dict)
    durable: int = 30
    steps: int = 60
    seeds: tuple[int, ...] = (0,)
    end: str = "Succeeded"

    @property
    def name(self) -> str:
        return self.script.replace("_", "-")


HABITS = (
    Habit("in_place", kill),
    Habit("best_and_last", delete_last_pod, {"resume_args": ()}),
    Habit("every_node", delete_last_pod, {"replicas": 2}, seeds=(0, 1000)),
    Habit("shards", kill, {"replicas": 2}, seeds=(0, 1000)),
    Habit("own_pointer", delete_last_pod, {"resume_args": ()}),
    Habit("final_model", kill, {"shell": "set -eu; exec TRAIN $(RTJ_RESUME_ARGS)"}),
    Habit("traps_sigterm", delete_last_pod),
    Habit("ignores_resume", kill, end="Held"),
)
# The unit tier has each of these with a real sidecar: tests/unit/agent/test_agent_habits.py
MORE = (
    Habit("same_step", kill),
    Habit("never_rotates", kill, {"stall_at": 82}, durable=80, steps=100),
    Habit("infinities", kill, {"torch": True}),
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


def undisturbed(script: str, *, steps: int) -> str:
    """The last line of the same script with the same PyTorch, run here and never hurt."""
    packages = manifests.site_packages()
    place = manifests.ROOT / "tests" / "kit" / "trainers" / "habits" / f"{script}.py"
    with tempfile.TemporaryDirectory() as out:
        words = ["--out", out, "--steps", str(steps), "--step-seconds", "0"]
        done = subprocess.run(
            [str(packages.parents[2] / "bin" / "python"), str(place), *words],
            env={**os.environ, "PYTHONPATH": str(manifests.ROOT / "tests")},
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.splitlines()[-1]


def manifest_of(habit: Habit, *, store: dict[str, Any]) -> dict[str, Any]:
    options = {"steps": habit.steps, "stall_at": 32, **habit.options}
    made = manifests.habit(habit.name, habit.script, store=store, **options)
    if habit.script == "never_rotates":
        made["spec"]["template"]["spec"]["volumes"].append(DISK)
        mount = {"name": "disk", "mountPath": "/checkpoints"}
        manifests.trainer_of(made)["volumeMounts"].append(mount)
    return made


class Day:
    """All habits, a few at a time: thirteen pods that start at once starve each other."""

    def __init__(self, space: Kube, store: dict[str, Any], habits: Sequence[Habit]) -> None:
        self.space, self.store = space, store
        self.jobs = {h.script: Job(kube=space, name=h.name) for h in habits}
        self.waiting, self.active, self.hurt = list(habits), list[Habit](), set[str]()

    def is_over(self) -> bool:
        """One look at all jobs; hurts those that are due and begins the next ones."""
        found = {raw["metadata"]["name"]: raw.get("status") or {} for raw in self.space.list(KIND)}
        for habit in list(self.active):
            status = found.get(habit.name, {})
            assert status.get("phase") != "Failed", self.jobs[habit.script].describe()
            if status.get("attempt", 0) > 1:  # also where kubectl lost the answer
                self.hurt.add(habit.script)
            durable = (status.get("checkpoint") or {}).get("lastDurableStep") or 0
            if habit.script not in self.hurt and durable >= habit.durable:
                with suppress(KubectlError):  # not answered in time: the others' turn, then again
                    habit.hurt(self.jobs[habit.script])
                    self.hurt.add(habit.script)
            if habit.script in self.hurt and status.get("phase") == habit.end:
                self.active.remove(habit)
        while self.waiting and len(self.active) < AT_ONCE:
            self.space.apply(manifest_of(self.waiting[0], store=self.store))
            self.active.append(self.waiting.pop(0))
        return not self.active

    def pass_by(self) -> None:
        try:
            wait_for(self.is_over, within=780, every=1, what="every job hurt once and at its end")
        except AssertionError as error:
            told = "\n".join(self.jobs[habit.script].describe() for habit in self.active)
            raise AssertionError(f"{error}\n{self.active}, hurt: {self.hurt}\n{told}") from None


def hurt_once(product: Stack, space: Kube, habits: Sequence[Habit]) -> dict[str, Job]:
    """Each to its end, and right: the jobs by script."""
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    day = Day(space, store, habits)
    day.pass_by()
    for habit in (habit for habit in habits if habit.end == "Succeeded"):
        resumed_right(product, space, habit, day.jobs[habit.script])
    return day.jobs


def resumed_right(product: Stack, space: Kube, habit: Habit, job: Job) -> None:
    status = job.status()
    assert status["starts"] >= 2, habit
    # Nothing durable is lost, and the newest save is the last one.
    resumed = status["resume"]["step"]
    assert resumed >= habit.durable, (habit, status["resume"])
    newest = manifests_of(product, space, habit.name)[-1]
    assert newest["step"] == habit.steps, (habit, newest["name"], status["checkpoint"])
    for rank, seed in enumerate(habit.seeds):
        log = log_of(product, space, habit.name, rank)
        assert f"START {resumed}\n" in log, (habit, log)
        is_torch = bool(habit.options.get("torch"))
        own = undisturbed(habit.script, steps=habit.steps) if is_torch else None
        assert (own or expected(habit.steps, seed=seed)) in log, (habit, log[-2000:])


@pytest.mark.timeout(900)
def test_each_habit_resumes_right_or_is_stopped_with_the_right_words(
    product: Stack, space: Kube
) -> None:
    jobs = hurt_once(product, space, HABITS)

    # What it saved on the way out is what it went on from.
    assert "SAVED AT THE END 32" in log_of(product, space, "traps-sigterm", 0)
    assert jobs["traps_sigterm"].status()["resume"]["step"] == 32

    # A file of an older save came back to the new pod with the newest one.
    assert "BEST 5\n" in log_of(product, space, "best-and-last", 0)

    # The final model lies in the store beside the checkpoints, under its own name.
    prefix = f"{space.namespace}/{space.namespace}/final-model/outputs/"
    left = {key.split("/", 5)[-1] for key in list_keys(product.s3, prefix=prefix)}
    assert left == {"model.safetensors", "config.json", "report/curve.csv", ".rtj/0.json"}

    # A fresh start in place of a resume: stopped, told, and nothing was lost.
    status = jobs["ignores_resume"].status()
    assert status["hold"]["reason"] == "CheckpointIgnored"
    assert "checkpoint.resumeArgs" in status["hold"]["message"]
    assert status["checkpoint"]["lastDurableStep"] == 30
    records = manifests_of(product, space, "ignores-resume")
    assert {record["fence"] for record in records} == {1}, "it published what it made from 0"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_more_habits_resume_right(product: Stack, space: Kube) -> None:
    jobs = hurt_once(product, space, MORE)
    # `inf` and `-inf` condemned nothing.
    assert not jobs["infinities"].status()["checkpoint"].get("invalid")
