"""Turns of the real loop over an in-memory cluster, with a decision that a test makes up.

Must never reach a real API server.
"""

from __future__ import annotations

from collections.abc import Callable

from rtj_api import contract
from rtj_api.status import Status
from rtj_operator.core.observed import JobKey, Observed
from rtj_operator.core.plan import CreatePod, Note, Plan
from rtj_operator.shell.app import App

KEY = JobKey("team", "gpt")


EMPTY = Plan(rule="Settled", why="nothing to do")


def script(*plans: Plan | Callable[[Observed], Plan]) -> Callable[[Observed], Plan]:
    """Each plan once, in this order, then nothing."""
    left = list(plans)

    def decide(observed: Observed) -> Plan:
        if not left:
            return EMPTY
        plan = left.pop(0)
        return plan if isinstance(plan, Plan) else plan(observed)

    return decide


def pod_name(rank: int, job_uid: str) -> str:
    return contract.pod_name(job="gpt", rank=rank, made_in=1, job_uid=job_uid)


def create(rank: int, job_uid: str) -> CreatePod:
    return CreatePod(rank=rank, made_in=1, name=pod_name(rank, job_uid))


def deciding(status: Status, *notes: Note) -> Plan:
    return Plan(rule="Test", why="because", status=status, notes=notes)


async def turn(app: App, *, key: JobKey = KEY) -> float | None:
    """One turn on the job; seconds until the next."""
    app.queue.add(key)
    assert await app.queue.get() == key
    await app.reconciler.turn(key)
    return app.queue.seconds_to_next()
