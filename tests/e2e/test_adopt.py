"""A job that begins from what another's trainer left in a bucket, and `rtj` at work on its run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.podlike import ENVIRONMENT
from kit.rtj import Job
from kit.stack import Stack
from kit.trainers.counter import next_state, read_checkpoint, write_checkpoint


def state_at(step: int) -> int:
    state = 1
    for each in range(1, step + 1):
        state = next_state(state, each)
    return state


def rtj(product: Stack, *words: object, code: int = 0) -> str:
    """The command as a person with a kubeconfig runs it, without any S3 credentials of theirs."""
    environment = {name: text for name, text in ENVIRONMENT.items() if not name.startswith("AWS_")}
    environment |= {"KUBECTL": product.kube.kubectl, "KUBECONFIG": product.kube.kubeconfig}
    done = subprocess.run(
        [sys.executable, "-m", "rtj_cli", *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
def test_a_job_begins_from_foreign_checkpoints_in_a_bucket(
    product: Stack, space: Kube, tmp_path: Path
) -> None:
    old = f"old/{space.namespace}"
    client = product.s3.client()
    for step in (20, 25, 30):
        path = tmp_path / f"step_{step}.pt"
        write_checkpoint(path, step=step, state=state_at(step))
        data = path.read_bytes()
        if step == 30:  # damaged since: its size is right, its bytes are not
            at = data.index(b"data/0") + 20
            data = data[:at] + bytes(40) + data[at + 40 :]
        client.put_object(Bucket=product.s3.bucket, Key=f"{old}/{path.name}", Body=data)

    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    source = f"s3://{product.s3.bucket}/{old}"
    wanted = {"resumeFrom": source, "retention": {"keepLast": 2, "keepEvery": 10}}
    space.apply(manifests.counter("gpt", store=store, replicas=1, checkpoint=wanted))
    job = Job(kube=space, name="gpt")
    status = job.wait_phase("Running", within=240)
    assert (status["resume"]["step"], status["resume"]["name"]) == (25, "f1-n1-s25")
    words = [e["message"] for e in job.events() if e["reason"] == "CheckpointFallback"]
    assert any("step_30.pt" in text and "Torn" in text for text in words)
    job.wait_durable(35)

    target = f"{space.namespace}/gpt"

    def rows() -> list[dict[str, Any]]:
        return json.loads(rtj(product, "checkpoints", "list", target, "-o", "json"))

    seen = rows()
    newest = next(row for row in seen if row["current"])
    assert newest["step"] >= 35
    assert [row["step"] for row in seen if row["name"] == "f1-n1-s25"] == [25]
    rtj(product, "checkpoints", "verify", target, newest["name"], "f1-n1-s25", "--deep")
    out = tmp_path / "out"
    rtj(product, "checkpoints", "pull", target, out, newest["name"])
    told = json.loads(rtj(product, "checkpoints", "show", target, newest["name"], "-o", "json"))
    pulled = read_checkpoint(out / told["rootKey"])
    assert pulled == (newest["step"], state_at(newest["step"])), "as if uninterrupted"

    # The job's own sidecar thins out its line: 2 newest, each tenth step, what it began from.
    job.wait_durable(60)
    wait_for(lambda: "going" in {row["state"] for row in rows()}, within=60, what="something goes")
    stays = {row["step"] for row in rows() if row["state"] == "valid"}
    assert {25, 30, 40, 50} <= stays
    assert 35 not in stays
    # A person's word on a save is every later attempt's.
    rtj(product, "checkpoints", "mark", target, "f1-n1-s25", "poison", "--reason", "a test")
    assert {row["name"]: row["state"] for row in rows()}["f1-n1-s25"] == "poison"
