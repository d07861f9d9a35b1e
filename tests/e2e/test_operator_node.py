"""The node under the operator loses power, and with it maybe a rank: both come back unaided."""

from __future__ import annotations

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.stack import Stack


@pytest.mark.timeout(420)
def test_the_operator_comes_back_elsewhere_and_goes_on(product: Stack, space: Kube) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.counter("count", store=store))
    job = Job(kube=space, name="count")
    job.wait_durable(10, within=240)
    before = job.status()
    node = product.operator_node()
    product.cluster.node_kill(node)
    try:
        wait_for(
            lambda: product.operator_node() != node,
            within=240,
            what="a ready operator on another node",
            every=2,
        )
        job.wait_durable(before["checkpoint"]["lastDurableStep"] + 20, within=180)
        assert node not in {job.node(0), job.node(1)}
        status = job.status()
        assert status["starts"] - before["starts"] == status["restarts"] - before["restarts"]
    finally:
        product.cluster.node_heal(node)
