"""API server, kubelets, network and operator falter for some minutes, and nobody is lost."""

from __future__ import annotations

import random

import pytest
from kit import manifests
from kit.kube import Kube
from kit.rtj import Job
from kit.stack import Stack

from benchmarks.hiccups import HICCUPS, soak

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
]


def test_no_attempt_is_lost_to_hiccups(product: Stack, space: Kube) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.counter("soak", store=store, save_every=25, extra=("--lockstep",)))
    job = Job(kube=space, name="soak")
    job.wait_durable(25, within=180)
    begun = job.report(0)["progress"]["step"]
    done = soak(product, job, minutes=5, draw=random.Random(5), kinds=list(HICCUPS))
    assert [each for each in done if each["attempt"] != 1] == []
    job.wait_step(begun + 25, within=60)
    assert job.status()["restarts"] == 0
