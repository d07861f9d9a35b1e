"""Damaged checkpoints in the store: never resumed, always named, never silently step 0."""

from __future__ import annotations

import json
import re

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import KIND, Job
from kit.s3_objects import flip_byte, list_keys, read_object, remove_object
from kit.stack import Stack


def runs(product: Stack, prefix: str) -> list[dict]:
    """The commit records below a prefix, newest last."""
    keys = [key for key in list_keys(product.s3, prefix=prefix) if "/manifests/" in key]
    found = [json.loads(read_object(product.s3, key=key)) for key in keys]
    return sorted(found, key=lambda record: (record["fence"], record["n"]))


def object_key(product: Stack, prefix: str, record: dict) -> str:
    """The key of that record's first file."""
    ending = record["files"][0]["key"]
    return next(k for k in list_keys(product.s3, prefix=prefix) if k.endswith(ending))


def mark_of(key: str) -> tuple[int, int] | None:
    """(fence, n) of the save that this object is a mark of."""
    found = re.search(r"/marks/f(\d+)-n(\d+)/\d+\.json$", key)
    return (int(found[1]), int(found[2])) if found else None


def suspend(job: Job, *, value: bool) -> None:
    patch = json.dumps({"spec": {"suspend": value}})
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", patch)


@pytest.mark.timeout(600)
def test_flipped_byte_and_missing_object_fall_back_and_none_left_holds(
    product: Stack, space: Kube
) -> None:
    prefix = f"{space.namespace}/"
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.ddp("hurt", store=store, steps=100_000, save_every=4, step_seconds=0.25))
    job = Job(kube=space, name="hurt")
    job.wait_durable(16, within=240)

    # Suspended, the pods and with them all local copies are gone.
    suspend(job, value=True)
    job.wait_phase("Suspended", within=120)
    wait_for(lambda: not job.pods(), within=120, what="suspended pods gone")
    records = runs(product, prefix)
    assert len(records) >= 4
    newest, second, third = records[-1], records[-2], records[-3]
    flip_byte(product.s3, key=object_key(product, prefix, newest))
    remove_object(product.s3, key=object_key(product, prefix, second))

    suspend(job, value=False)
    status = job.wait_status(
        "resumed from the third newest",
        lambda s: s["phase"] == "Running" and s["resume"]["name"] == third["name"],
        within=180,
    )
    assert status["resume"]["step"] == third["step"]
    # Each bad save carries the mark of its own damage, and no other save carries one.
    marks = {
        mark_of(key): json.loads(read_object(product.s3, key=key))
        for key in list_keys(product.s3, prefix=prefix)
        if mark_of(key)
    }
    told = {save: (mark["kind"], mark["reason"]) for save, mark in marks.items()}
    assert {save: row for save, row in told.items() if row[0] == "invalid"} == {
        (newest["fence"], newest["n"]): ("invalid", "CheckpointCorrupt"),
        (second["fence"], second["n"]): ("invalid", "CheckpointObjectMissing"),
    }
    wait_for(
        lambda: (
            {"CheckpointCorrupt", "CheckpointObjectMissing"}
            <= {event["reason"] for event in job.events()}
        ),
        within=30,
        what="an Event for each bad checkpoint",
    )
    job.wait_status("invalid counted", lambda s: s["checkpoint"]["invalid"] >= 2)

    # None valid left: Hold, never step 0.
    suspend(job, value=True)
    job.wait_phase("Suspended", within=120)
    wait_for(lambda: not job.pods(), within=120, what="suspended pods gone")
    for record in runs(product, prefix):
        if record["name"] not in {newest["name"], second["name"]}:
            flip_byte(product.s3, key=object_key(product, prefix, record))
    starts = job.status()["starts"]
    suspend(job, value=False)
    status = job.wait_phase("Held", within=180)
    assert status["hold"]["reason"] == "NoValidCheckpoint"
    assert "allow-scratch" in status["hold"]["message"]
    assert status["starts"] == starts

    job.request(id="yes", action="allow-scratch")
    status = job.wait_phase("Running", within=180)
    assert status["resume"]["scratch"] is True
