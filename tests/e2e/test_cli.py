"""`rtj` on a real job: by somebody who may only look, then by somebody who may change it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import manifests
from kit.kube import Kube
from kit.person import looks_at_a_running_job, onlooker, owner
from kit.rtj import Job
from kit.stack import Stack


@pytest.mark.timeout(600)
def test_a_job_is_looked_at_suspended_and_sent_back_to_a_save(
    product: Stack, space: Kube, tmp_path: Path
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.ddp("gpt", store=store, save_every=5, steps=100_000, step_seconds=0.25))
    job = Job(kube=space, name="gpt")
    job.wait_phase("Running", within=240)
    job.wait_durable(5)
    job.kill_trainer(1)
    job.wait_training(2)
    step = job.status()["checkpoint"]["lastDurableStep"]
    job.wait_durable(step + 5)
    credentials = product.s3.environment()
    person = onlooker(space, tmp_path, **credentials)
    looks_at_a_running_job(person, namespace=space.namespace, name="gpt", directory=tmp_path)

    me, name = owner(product.kube, **credentials), f"{space.namespace}/gpt"
    ranks = me.rtj("top", name, "-o", "json").json()
    assert [row["step"] is not None for row in ranks] == [True, True]
    page = tmp_path / "night.html"
    me.rtj("report", name, "--to", page)
    assert "What the operator decided, and on what evidence" in page.read_text()
    me.rtj("suspend", name)
    me.rtj("wait", name, "--for", "Suspended", "--timeout", 120)
    said = me.rtj("resume", name, "--from", step).words
    assert "the operator: the next start is from f" in said
    me.rtj("wait", name, "--for", "Running", "--timeout", 120)
    assert job.status()["resume"]["step"] == step
