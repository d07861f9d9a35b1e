"""A run that another job holds or held, as rank 0's sidecar tells of it."""

from __future__ import annotations

from typing import Any

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import PatchDirective, Plan

from kit.decisions import prepared, status_of

OWNER = "cluster-2/uid-9"


HOLDER = wire.Holder(
    owner=OWNER,
    namespace="team",
    job="gpt",
    attempt=3,
    fence=7,
    claimed_at=1_700_000_000.0,
    changes=["image a:1 -> a:2"],
)


def in_use(
    *, spec: dict[str, Any] | None = None, complete: bool = False, **report: Any
) -> Observed:
    reason = Reason.RUN_ALREADY_COMPLETE if complete else Reason.RUN_IN_USE
    return prepared(
        spec=spec,
        **{
            "phase": wire.SidecarPhase.FAILED,
            "problem": wire.Problem(reason=reason, message="another's", since=1001.0),
            "fence": None,
            "fence_owner": OWNER,
            "run_complete": complete,
            "listed": True,
            "holder": HOLDER.model_copy(update={"outcome": "complete" if complete else None}),
        }
        | report,
    )


def hold_of(plan: Plan) -> tuple[str, str]:
    hold = status_of(plan).hold
    assert hold is not None, plan
    return hold.reason, hold.message


def told(plan: Plan) -> dict[int, wire.Directive]:
    return {a.directive.rank: a.directive for a in plan.actions if isinstance(a, PatchDirective)}
