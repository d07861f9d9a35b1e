"""What the recovery benchmarks read and do: steps in a trainer's log, a pod taken away.

The trainer prints `STEP n time` with the machine's time, and every node of a devcluster shares that
clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from kit.kube import Kube, wait_for
from kubernetes import client, config

WHOLE = re.compile(r"STEP (\d+) (\d+\.\d{6})$")


@dataclass(frozen=True)
class Step:
    number: int
    at: float


def steps(log: str) -> list[Step]:
    """`STEP n time` lines of a trainer's log; one that was cut off by a kill counts nothing."""
    found = (WHOLE.match(line) for line in log.splitlines())
    return [Step(number=int(line[1]), at=float(line[2])) for line in found if line]


def first_step_after(look: Callable[[], str], *, when: float, within: float) -> float:
    """Time of the first step printed after `when`."""

    def once() -> float | None:
        later = [step.at for step in steps(look()) if step.at > when]
        return later[0] if later else None

    return wait_for(once, within=within, what="a new step", every=0.25)


def remove(space: Kube, pod: str, *, evict: bool) -> float:
    """Delete or evict a pod through the API; the moment before the call."""
    api = client.CoreV1Api(config.new_client_from_config(space.kubeconfig))
    where = {"name": pod, "namespace": space.namespace}
    body = client.V1Eviction(metadata=client.V1ObjectMeta(**where))
    began = time.time()
    if evict:
        api.create_namespaced_pod_eviction(**where, body=body)
    else:
        api.delete_namespaced_pod(**where)
    return began
