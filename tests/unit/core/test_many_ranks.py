"""Gangs larger than what any list of a decision is usually cut to."""

from __future__ import annotations

from kit.observations import with_report
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.rules.resume import MAX_PEERS
from rtj_api.status import Status
from rtj_api.v1alpha1 import MAX_REPLICAS
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec

RANKS = 80
NAME = "f1-n1-s5"


def test_a_save_that_only_all_of_its_many_writers_together_hold_is_chosen() -> None:
    assert MAX_PEERS < RANKS <= MAX_REPLICAS
    world = World(spec=JobSpec(replicas=RANKS, run_id="ns/gpt", template_hash="h1"))
    operator = Operator(world)

    def ready() -> bool:
        pods = list(world.pods.values())
        return len(pods) == RANKS and all(p.machine == wire.SidecarPhase.PREPARED for p in pods)

    while not ready():
        world.tick()
        if not ready() and world.hint:
            operator.run_pass()
    seen = world.observe()
    needs = list(range(RANKS))
    save = wire.Candidate(name=NAME, step=5, durable=False, full_state=True, needs=needs)
    for rank in range(RANKS):
        told = {"shares": [NAME], "candidates": [save] if rank == 0 else []}
        seen = with_report(seen, rank, lambda r, told=told: r.model_copy(update=told))
    plan = decide(seen)
    assert plan.rule == "choose"
    assert plan.status is not None
    assert plan.status.resume is not None
    assert plan.status.resume.name == NAME
    assert len(plan.status.resume.peers) == RANKS
    assert Status.model_validate(plan.status.dump()) == plan.status, "it can be written and read"
