"""Where a fault may come from, as far as its sign tells, and what follows for the next restart.

One word a sign (a log signature, an Xid, an exit code), so that tables stay data. A sign alone
never ends a job: what it proposes is believed a few times and then tried (`rules.blame`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rtj_api.reasons import Charge


class Origin(StrEnum):
    NODE = "node"
    NETWORK = "network"
    CHECKPOINT = "checkpoint"
    PROGRAM = "program"
    PLACE = "place"
    OPEN = "open"
    PASSING = "passing"


CHARGES: Mapping[Origin, Charge] = {
    Origin.NODE: Charge.INFRASTRUCTURE,
    Origin.NETWORK: Charge.INFRASTRUCTURE,
    Origin.CHECKPOINT: Charge.CHECKPOINT,
}
"""Those not named use the job's own budget."""

BELIEVED = 3
"""So many faults of one sign are free of charge without durable progress: a fault that follows the
job on and on is the job's, whatever its last words claim."""

MOST_BELIEVED = 3 * BELIEVED
"""… and so many of all signs together: those that take turns follow the job as well."""

WHAT_FOLLOWS: Mapping[Origin, str] = {
    Origin.NODE: f"Free, {BELIEVED} times without durable progress: the rank gets a new pod on "
    "another node.",
    Origin.NETWORK: f"Free, {BELIEVED} times without durable progress: restarted in place; twice "
    "on one node within five minutes, and the rank moves to another node.",
    Origin.CHECKPOINT: f"Free, {BELIEVED} times without durable progress: if no step was made, the "
    "save is suspect and the one before it is tried. If that fails alike, the suspicion is "
    "withdrawn and the job is held.",
    Origin.PROGRAM: "The job's budget: restarted once; a second fault alike at the same place ends "
    "the job early.",
    Origin.PLACE: "The job's budget: restarted in place; a second fault alike moves the rank to "
    "another node; a third at the same place ends the job early.",
    Origin.OPEN: "The job's budget: restarted in place; if it comes again, one factor is changed a "
    "restart, the save (first where it failed soon after resuming) and the node; what is left "
    "after three restarts at the same place is the step or the program, and the job ends early.",
    Origin.PASSING: "The job's budget: restarted in place, with back-off.",
}
"""A sentence for people, by origin."""


def charge_of(origin: Origin) -> Charge:
    return CHARGES.get(origin, Charge.USER)
