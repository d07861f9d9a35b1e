"""A trainer that saves as often as it is told, on real pods: told at its start, and told again."""

from __future__ import annotations

from kit import manifests
from kit.kube import Kube, wait_for
from kit.manifests import overlaid
from kit.rtj import Job
from kit.stack import Stack
from rtj_api import contract

FILE = "/rtj/run/checkpoint-interval"
PATCH = '{"spec": {"checkpoint": {"interval": {"seconds": %d}}}}'


def test_a_change_of_the_interval_reaches_the_trainer_that_runs(
    product: Stack, space: Kube
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    told = ("--interval-file", f"$({contract.ENV_CHECKPOINT_INTERVAL_FILE})")
    manifest = manifests.ddp("gpt", store=store, steps=100_000, extra=told)
    wish = {"spec": {"checkpoint": {"interval": {"seconds": 86_400}}}}
    space.apply(overlaid(manifest, wish))
    job = Job(kube=space, name="gpt")
    job.wait_training(1)
    for rank in (0, 1):
        assert space.exec(job.pod_name(rank), "cat", FILE) == "86400\n"
    wait_for(lambda: (job.status()["progress"].get("step") or 0) > 0, within=120, what="a step")
    assert "lastSavedStep" not in job.status()["checkpoint"], "a day has not passed"

    space.run("patch", "rtj", "gpt", "--type=merge", "-p", PATCH % 2)
    wait_for(
        lambda: space.exec(job.pod_name(0), "cat", FILE) == "2\n",
        within=60,
        what="the new interval on rank 0",
    )
    status = job.wait_status(
        "saves, and how far apart they are", lambda s: s["interval"].get("actualSeconds")
    )
    assert status["attempt"] == 1, "nothing was started anew for it"
    assert status["interval"]["rule"] == "Fixed"
    assert status["interval"]["publishedSeconds"] == 2
    assert status["interval"]["actualSeconds"] >= 2
